"""What Detectron2's models achieved, as its MODEL_ZOO.md says (COCO val2017)."""

from __future__ import annotations

from oomproof.sources.zoo import Published

_SOURCE = "https://github.com/facebookresearch/detectron2/blob/main/MODEL_ZOO.md"
_PER_GPU = {"SOLVER.IMS_PER_BATCH": 2}
"""all of them were trained with two images on each GPU"""
_METRICS = {"boxes": "box AP", "masks": "mask AP", "keypoints": "keypoint AP"}

_BOXES = {
    "COCO-Detection/faster_rcnn_R_50_FPN_1x": 37.9,
    "COCO-Detection/faster_rcnn_R_50_FPN_3x": 40.2,
    "COCO-Detection/faster_rcnn_R_50_DC5_1x": 37.3,
    "COCO-Detection/faster_rcnn_R_50_C4_3x": 38.4,
    "COCO-Detection/faster_rcnn_R_101_C4_3x": 41.1,
    "COCO-Detection/faster_rcnn_X_101_32x8d_FPN_3x": 43.0,
    "COCO-Detection/retinanet_R_50_FPN_1x": 37.4,
    "COCO-Detection/retinanet_R_101_FPN_3x": 40.4,
}
_MASKS = {
    "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x": 35.2,
    "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x": 37.2,
    "COCO-InstanceSegmentation/mask_rcnn_R_50_DC5_1x": 34.2,
    "COCO-InstanceSegmentation/mask_rcnn_R_50_DC5_3x": 35.9,
    "COCO-InstanceSegmentation/mask_rcnn_R_101_C4_3x": 36.7,
    "Misc/mask_rcnn_R_50_FPN_3x_dconv_c3-c5": 38.5,
    "Misc/cascade_mask_rcnn_R_50_FPN_3x": 38.5,
    "Misc/mask_rcnn_R_50_FPN_3x_gn": 38.6,
    "Misc/scratch_mask_rcnn_R_50_FPN_9x_gn": 39.6,
    "Misc/scratch_mask_rcnn_R_50_FPN_9x_syncbn": 39.3,
}
_KEYPOINTS = {
    "COCO-Keypoints/keypoint_rcnn_R_50_FPN_1x": 64.0,
    "COCO-Keypoints/keypoint_rcnn_R_50_FPN_3x": 65.5,
    "COCO-Keypoints/keypoint_rcnn_R_101_FPN_3x": 66.1,
}


def list_published() -> tuple[Published, ...]:
    """Parameters and arithmetic are not published there."""
    tables = {"boxes": _BOXES, "masks": _MASKS, "keypoints": _KEYPOINTS}
    return tuple(
        Published(
            job=f"{name}.yaml",
            model=name.rpartition("/")[2],
            task="detection",
            outputs=outputs,
            metric=_METRICS[outputs],
            value=value,
            data="COCO-val2017",
            source=_SOURCE,
            side=800,
            settings=_PER_GPU,
        )
        for outputs, table in tables.items()
        for name, value in table.items()
    )

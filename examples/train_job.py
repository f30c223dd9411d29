"""Fine-tuning a detector: Mask R-CNN with a partly frozen backbone, on classes of your own.

oomproof check examples/train_job.py:job --on 8GiB
"""

from typing import Literal

import torch
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

from oomproof import TorchJob

CLASSES = 6  # the background counts as one


def job(batch=2, image_size=(800, 1333), boxes=20, backbone: Literal["resnet50", "resnet34", "resnet18"] = "resnet50"):
    """The parameters are the job's settings; their defaults are how it is trained today.

    What a Literal lists may be tried by `oomproof fit`, in this order.
    """
    height, width = image_size

    def model():
        # No weights are loaded: their values change nothing about memory. What they freeze does, so say it.
        body = resnet_fpn_backbone(backbone_name=backbone, weights=None, trainable_layers=3)
        return MaskRCNN(body, CLASSES, min_size=min(image_size), max_size=max(image_size))

    def target():
        # The detector looks at the boxes, and their number decides how much its heads hold: make them plausible,
        # and as many as in the fullest image of your annotations.
        corner = torch.rand(boxes, 2) * torch.tensor([width * 0.7, height * 0.7])
        size = 8 + torch.rand(boxes, 2) * torch.tensor([width * 0.25, height * 0.25])
        return {
            "boxes": torch.cat([corner, corner + size], dim=1),
            "labels": torch.randint(1, CLASSES, (boxes,)),
            "masks": torch.zeros(boxes, height, width, dtype=torch.uint8),
        }

    def data():
        # A list of images, as this model takes them: of the largest size that the data loader gives.
        return [torch.rand(3, height, width) for _ in range(batch)], [target() for _ in range(batch)]

    return TorchJob(
        model=model,
        batch=data,
        loss=lambda net, data: net(*data),  # a dict of losses: they are added up
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=1e-4),
    )

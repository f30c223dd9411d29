"""What `oomproof run pipeline.config` promises of micro-batches, by the config alone."""

from __future__ import annotations

import pytest

from oomproof.sources.tf_object_detection.config.config import config_of_text
from oomproof.sources.tf_object_detection.run_job import RunJob

CONFIG = """
model { ssd { num_classes: 3 image_resizer { fixed_shape_resizer { height: 300 width: 300 } }
  feature_extractor { type: "EXTRACTOR" } box_predictor { HEAD } } }
train_config { batch_size: 24 num_steps: 10 }
"""


@pytest.mark.parametrize(
    ("extractor", "head", "exact"),
    [
        ("ssd_mobilenet_v2_keras", "convolutional_box_predictor { use_dropout: false }", True),
        ("ssd_mobilenet_v2_keras", "convolutional_box_predictor { }", False),
        ("ssd_resnet50_v1_fpn_keras", "weight_shared_convolutional_box_predictor { }", True),
        ("ssd_efficientnet-b0_bifpn_keras", "weight_shared_convolutional_box_predictor { }", False),
    ],
)
def test_gradients_of_the_whole_batch_are_promised_where_nothing_drops_out(
    extractor: str, head: str, exact: bool
) -> None:
    job = RunJob("x", config_of_text(CONFIG.replace("EXTRACTOR", extractor).replace("HEAD", head), "x"))
    assert (job.why_not_exact() == ()) is exact

"""Jobs of the TensorFlow Object Detection API. So far its pipeline.config: read, checked and edited without TensorFlow.

May import ``oomproof.errors`` and what is general of the other sources; never TensorFlow, protobuf or the API itself.
"""

"""Jobs of the TensorFlow Object Detection API: its pipeline.config read, checked, forecast and edited.

The API itself, TensorFlow and protobuf are loaded by a child process alone (trace/tf_object_detection).
"""

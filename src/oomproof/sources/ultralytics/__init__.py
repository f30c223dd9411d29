"""Models of Ultralytics by name: YOLO and RT-DETR, with their own losses."""

"""What a training's data hold in host RAM while they are read and prepared. Imports memory/, and TensorFlow lazily."""

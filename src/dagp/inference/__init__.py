"""How a model is trained: data preparation, the ELBO, natural gradients and Adam, minibatches, the
paper's scheme, linear response. Imports `core` and `model`."""

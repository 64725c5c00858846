"""The models of `against.py` in GPflow: natural gradients for processes, Adam for the rest."""

import sys
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras
from peer import Job, serve

SAMPLES = 8


def sparse(X: Any, Z: Any, outputs: int, variance: float, job: Job) -> Any:
    """GPflow's sparse variational GP."""
    lengthscales = np.full(X.shape[1], job["lengthscale"])
    return gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(variance, lengthscales),
        gpflow.likelihoods.Gaussian(job["noise"] ** 2),
        gpflow.inducing_variables.InducingPoints(Z.copy()),
        num_latent_gps=outputs,
        num_data=len(X),
    )


class Trained:
    """Base class: minimises a loss by natural gradients and Adam."""

    def _prepare(self, gps: list[Any], others: list[Any], job: Job) -> None:
        if job["natural"]:
            for gp in gps:
                gpflow.set_trainable(gp.q_mu, False)
                gpflow.set_trainable(gp.q_sqrt, False)
        self.models = [*gps, *others]
        self.adam = tf_keras.optimizers.Adam(job["rate"])
        natural = gpflow.optimizers.NaturalGradient(gamma=job["natural_rate"])
        moved = [v for model in self.models for v in model.trainable_variables]
        q = [(model.q_mu, model.q_sqrt) for model in gps]

        @tf.function
        def step() -> tf.Tensor:
            for _ in range(job["natural"]):
                natural.minimize(self.loss, q)
            with tf.GradientTape() as tape:
                loss = self.loss()
            self.adam.apply_gradients(zip(tape.gradient(loss, moved), moved, strict=True))
            return loss

        self.step = step

    def loss(self) -> tf.Tensor:
        raise NotImplementedError

    def steps(self, count: int) -> float:
        loss = tf.constant(np.nan)
        for _ in range(count):
            loss = self.step()
        return -float(loss)


class Plain(Trained):
    """A sparse variational GP as in GPflow's documentation."""

    def __init__(self, X: np.ndarray, y: np.ndarray, Z: np.ndarray, job: Job):
        self.data = (tf.constant(X), tf.constant(y[:, None]))
        model = sparse(X, Z, 1, 1.0, job)
        self.loss = model.training_loss_closure(self.data, compile=False)
        self._prepare([model], [], job)


class Association(Trained):
    """Processes and a gate, with the assignments summed out of the ELBO."""

    def __init__(self, X: Any, y: Any, Z: Any, probes: Any, job: Job):
        self.X, self.y, self.probes = tf.constant(X), tf.constant(y[:, None]), tf.constant(probes)
        K = job["processes"]
        self.gate = sparse(X, Z, K, job["gate_variance"], job)
        gpflow.set_trainable(self.gate.likelihood, False)
        self.processes = [sparse(X, Z, 1, 1.0, job) for _ in range(K)]
        self._prepare(self.processes, [self.gate], job)
        self.found = tf.function(lambda: tf.nn.softmax(self.log_joint(), axis=1))
        variables = [v for model in self.models for v in model.variables]
        self.beginning = [(v, v.numpy()) for v in variables]

    def restart(self, seed: int) -> None:
        """Initialise every function as a draw from its prior; compiled code is reused."""
        tf.random.set_seed(seed)
        rng = np.random.default_rng(seed)
        for variable, value in [*self.beginning, *((v, 0 * v) for v in self.adam.variables[1:])]:
            variable.assign(value)
        for process in self.processes:
            process.q_mu.assign(rng.standard_normal(process.q_mu.shape))

    def log_joint(self) -> tf.Tensor:
        density = []
        for process in self.processes:
            mean, variance = process.predict_f(self.X)
            noise = process.likelihood.variance
            misfit = ((self.y - mean) ** 2 + variance) / noise
            density.append(-0.5 * (misfit + tf.math.log(2 * np.pi * noise)))
        mean, variance = self.gate.predict_f(self.X)
        total = tf.reduce_logsumexp(self._drawn(mean, variance), axis=2)
        return tf.concat(density, 1) + mean - tf.reduce_mean(total, axis=0)[:, None]

    @staticmethod
    def _drawn(mean: tf.Tensor, variance: tf.Tensor, count: int = SAMPLES) -> tf.Tensor:
        shape = tf.concat([[count], tf.shape(mean)], 0)
        deviates = tf.random.normal(shape, dtype=mean.dtype)
        return mean + tf.sqrt(tf.maximum(variance, 1e-12)) * deviates

    def loss(self) -> tf.Tensor:
        data = tf.reduce_sum(tf.reduce_logsumexp(self.log_joint(), axis=1))
        return tf.add_n([model.prior_kl() for model in self.models]) - data

    def look(self) -> tuple[np.ndarray, np.ndarray]:
        drawn = self._drawn(*self.gate.predict_f(self.probes), 2000)
        return self.found().numpy(), tf.reduce_mean(tf.nn.softmax(drawn, axis=2), 0).numpy()


def main() -> None:
    threads = int(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    found = {"tensorflow": tf.__version__, "gpflow": gpflow.__version__}
    serve(Plain, Association, lambda: found)


if __name__ == "__main__":
    main()

"""What every Keras job has to say about XLA to a search for plans."""

from __future__ import annotations

from oomproof.sources.job import Job, Settings


class MaybeCompiled(Job):
    """A job whose step XLA may compile."""

    one_what_if_at_a_time = True

    def settings_for_plans(self, settings: Settings) -> Settings:
        """Compiled by XLA only where that is asked for: each trace takes long then."""
        unasked = settings.get("jit_compile") == "own" and settings.get("backend") != "jax"
        return settings.with_values({"jit_compile": "false"}) if unasked else settings

    def settings_for_time(self, settings: Settings) -> Settings | None:
        """What XLA saves by fusing operations cannot be told without a GPU."""
        compiled = settings.get("jit_compile") == "true" or settings.get("backend") == "jax"
        if not compiled or "jit_compile" not in settings:
            return None
        return settings.with_values({"backend": "tensorflow", "jit_compile": "false"})

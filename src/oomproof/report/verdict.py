"""The first two lines of every answer: what happens on the device, and why."""

from __future__ import annotations

from oomproof.memory.epoch import Epoch
from oomproof.memory.forecast import Forecast
from oomproof.report.sizes import describe_count, gib, number

PLURALS = {
    "parameter": "parameters",
    "buffer": "buffers",
    "gradient": "gradients",
    "optimizer": "optimizer state",
    "activation": "activations",
    "input": "inputs",
    "temporary": "temporaries",
    "workspace": "workspace",
}


def verdict(forecast: Forecast) -> str:
    """One line that can stand alone, as in a log or a JSON field."""
    return f"{on_device(forecast)}{in_validation(forecast)}{describe_host(forecast)}{in_shm(forecast)}"


def in_validation(forecast: Forecast) -> str:
    """What becomes of the validation, where it was looked at."""
    other = forecast.validation
    if other is None:
        return ""
    outcome = {"fits": "fits", "at risk": "is at risk", "does not fit": "does not fit"}[other.on_device_outcome]
    decides = ", which decides," if forecast.decides == "validation" else ""
    return f"; validation{decides} {outcome}: {gib(other.on_device.expected)} (at worst {number(other.on_device.high)})"


def in_shm(forecast: Forecast) -> str:
    """What becomes of /dev/shm, where it is known how much it can hold."""
    if forecast.shm_limit is None:
        return ""
    fits = "fits" if forecast.shm_outcome == "fits" else "does not fit"
    return f"; {fits} /dev/shm: {number(forecast.shm)} of {gib(forecast.shm_limit)}"


def describe_host(forecast: Forecast) -> str:
    """What becomes of the host RAM, where it is known how much there is."""
    if forecast.ram is None:
        return ""
    wants, has = forecast.host, gib(forecast.ram)
    if forecast.host_outcome == "fits":
        return f"; fits the host: {number(wants.expected)} of {has} RAM (at worst {number(wants.high)})"
    if forecast.host_outcome == "at risk":
        return f"; at risk on the host: {number(wants.expected)} of {has} RAM expected, {number(wants.high)} at worst"
    needs = f"needs {gib(wants.expected)} RAM (at worst {number(wants.high)})"
    return f"; does not fit the host: {needs}, has {number(forecast.ram)}"


def on_device(forecast: Forecast) -> str:
    if forecast.epoch is None:
        return _of_step(forecast)
    return f"the worst batch {_of_step(forecast)}{_typical(forecast)}"


def _typical(forecast: Forecast) -> str:
    """Beside a worst batch that does not fit: what most of an epoch does."""
    epoch = forecast.epoch
    if epoch is None or forecast.on_device_outcome == "fits":
        return ""
    typical = epoch.typical
    outcome = {"fits": "fits", "at risk": "is at risk too", "does not fit": "does not fit either"}[typical.outcome]
    return f"; the typical one {outcome}: {gib(typical.on_device.expected)} (at worst {number(typical.on_device.high)})"


def _of_step(forecast: Forecast) -> str:
    name, used, budget = forecast.device.name, forecast.on_device, gib(forecast.budget)
    worst = f"(at worst {number(used.high)}{describe_tightness(forecast)})"
    if forecast.on_device_outcome == "fits":
        return f"fits {name}: {number(used.expected)} of {budget} {worst}"
    if forecast.room is not None and used.expected <= forecast.budget and forecast.reserved.high > forecast.room:
        return _describe_limit(forecast, forecast.room)
    if forecast.on_device_outcome == "at risk":
        return f"at risk on {name}: {number(used.expected)} of {budget} expected, {number(used.high)} at worst"
    return f"does not fit {name}: needs {gib(used.expected)} {worst}, has {number(forecast.budget)}"


def _describe_limit(forecast: Forecast, room: int) -> str:
    """The device has room enough, but the framework does not let its allocator take all of it."""
    name, wants = forecast.device.name, forecast.reserved
    outcome = "at risk on" if forecast.on_device_outcome == "at risk" else "does not fit"
    needs = f"needs {gib(wants.expected)} (at worst {number(wants.high)})"
    return f"{outcome} {name}: the allocator {needs} and may take {number(room)} of {number(forecast.budget)}"


def why(forecast: Forecast) -> str:
    """The decisive numbers in a sentence or two."""
    sentences = [] if forecast.host_outcome == "fits" else [_short_of_ram(forecast)]
    if forecast.shm_outcome != "fits":
        sentences.append(f"workers pass {gib(forecast.shm)} of batches through /dev/shm, and die of a bus error there")
    if forecast.epoch is not None:
        sentences.append(describe_worst(forecast.epoch))
    shortage = forecast.shortage or forecast.shortage_at_worst
    if shortage is not None:
        when = "memory runs out" if forecast.shortage else "at the upper figures memory runs out"
        place = moment(shortage.phase, shortage.owner, shortage.op)
        sentences.append(f"{when} {place}, which asks for {gib(shortage.requested)}")
    elif tight(forecast):
        sentences.append("at worst cuDNN has to do with less workspace, which costs time, not the run")
    elif forecast.gives_back:
        sentences.append("at worst it gets through only if PyTorch gives cached blocks back at every step")
    elif forecast.on_device_outcome == "at risk" and shortage is None:
        sentences.append("at worst the CUDA context takes more than is left beside the allocator")
    peak = moment(forecast.phase, forecast.owner, forecast.op)
    if shortage is not None and peak == moment(shortage.phase, shortage.owner, shortage.op):
        peak = "there too"
    sentences.append(f"the peak is {peak}{_most(forecast)}")
    return "; ".join(sentences)


def describe_worst(epoch: Epoch) -> str:
    """``the worst batch is 4 images padded to 800x1344 with 310 objects, the most crowded 342.jpg with 93``"""
    images = epoch.worst.spec.images
    crowded = max(images, key=lambda image: image.objects)
    size = "x".join(map(str, epoch.worst.padded))
    alike = all((image.height, image.width) == tuple(epoch.worst.padded) for image in images)
    batch = f"the worst batch is {describe_count(len(images), 'image')} {'of' if alike else 'padded to'} {size}"
    if epoch.padded_objects:
        return f"{batch}, with ground truth padded to {describe_count(crowded.objects, 'object')} each"
    if len(images) == 1:
        return f"{batch} with {describe_count(crowded.objects, 'object')}, {crowded.name}"
    objects = describe_count(epoch.worst.spec.objects, "object")
    return f"{batch} with {objects}, of which {crowded.name} has {crowded.objects}"


def tight(forecast: Forecast) -> bool:
    """It fits, but what it would like to have at the upper figures is more than there is."""
    return forecast.on_device_outcome == "fits" and (forecast.excess > 0 or forecast.less_workspace)


def describe_room(forecast: Forecast) -> str:
    """What stays free: of the device, or of what the framework lets its allocator take, where that is less.

    Of a card with 7.66 GiB, TensorFlow may take 6.66: beside a step with 3.90 at worst, 2.76 stay free, not 3.76.
    """
    if tight(forecast):
        return "it is tight, so keep other programs off the device"
    free = gib(max(0, -forecast.excess))
    if forecast.room is not None and forecast.reserved.high - forecast.room > forecast.on_device.high - forecast.budget:
        return f"{free} of the {number(forecast.room)} that the allocator may take stay free even at worst"
    return f"{free} stay free even at worst"


def describe_tightness(forecast: Forecast) -> str:
    """At the upper figures it fits with smaller workspaces, which leave less in the cache. An allocator that has taken
    its share at the start never gives anything back."""
    if not tight(forecast):
        return ""
    return ", with less workspace and cache" if forecast.room is None else ", with less workspace"


def moment(phase: str, owner: str, op: str) -> str:
    """``in backward of rpn.head (convolution_backward)``"""
    text = f"in {phase}" if phase else "in the step"
    if owner:
        text += f" of {owner}"
    return f"{text} ({op})" if op else text


def _short_of_ram(forecast: Forecast) -> str:
    short = forecast.host.high - (forecast.ram or 0)
    return f"host RAM is {gib(short)} short at worst, for the process, its data and their workers"


def _most(forecast: Forecast) -> str:
    """What holds the most at the peak."""
    if not any(forecast.kinds.values()):
        return ""
    kind = max(forecast.kinds, key=lambda name: forecast.kinds[name])
    verb = "holds" if kind in ("optimizer", "workspace") else "hold"
    share = f"{number(forecast.kinds[kind])} of {gib(forecast.allocated.expected)}"
    return f", where {PLURALS.get(kind, kind)} {verb} {share} allocated"

"""What a person or a program reads: a Forecast, a sweep, the GPUs and the settings as text (rich) and as JSON.

May import memory/ and sources/job; never a framework, never cli/.
"""

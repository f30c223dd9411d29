"""Make it fit, in three: the problem, estimates, and the search that confirms them.

Problem      what is asked: a job, a device, and the knobs that may be turned (problem.py)
Turned       a knob and the option it is turned to (turned.py)
TracedStep   the job with some knobs turned, traced: what estimates start from (estimates/traced_step.py)
Variant      a traced step with more knobs turned by what-if (estimates/variant.py)
Way          everything that is turned, with its peak and time by estimate (estimates/way.py)
Estimates    the ways of a problem, from all steps that were traced so far; pure (estimates/estimates.py)
Confirmed    a way that was traced in full (confirmed.py)
Attempt      one thing that the search tried, and what came of it (plan.py)
Plan         the answer (plan.py)

Imports memory/ and the words of sources/job.py, no framework: all it knows of a job are its knobs and its Timelines.
"""

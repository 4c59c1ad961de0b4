"""Ways of delaying a job side by side: each cell of the table is the result of a probe.

./tests/run comparison [--ways NAME ...] [--rows NAME ...] [--write]

ways/       one driver for each way, with one interface (ways/way.py)
rows.py     the questions, in their order: a sentence each, and the probe that answers it
answers.py  probes that answer yes, no, or by a short fact
figures.py  probes that measure
site.py     the servers and the processes of one probe
ask.py      one probe, in a process of its own
report.py   the table, and the README that it stands in
"""

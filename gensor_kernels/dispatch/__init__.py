"""From a call to a launch: `key.py` looks up the Plan of a warm call, all else happens once per kind of call.

Imports between these folders point down this list:

accelerated   CuPy's own functions, which call those of api
api           the public functions: from what a caller wrote to the call of a Function
plans         first calls, copies, launches, trials, recorded and composed calls: one stack for all Functions
functions     what each public function means to kernels, and how the array library computes the same
contractions  einsum and its like as labels of axes: groups, windows, order of pairs
tuning        races, tuning in the background, and the way of their results into the user's database
selection     the stored kernels, predicted times, and the tier that serves a call
calls         arguments by NumPy's rules, the layouts of arrays, and the array library's element-wise operations
observe       counters, recordings, dry runs and explanations
"""

"""Says in which functions it is, as JSON, and waits there for a line: each with its first line."""

import json
import sys
import threading


def told(frame):
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        yield [name, code.co_filename, code.co_firstlineno]
        frame = frame.f_back


def waits(_):
    stack = list(told(sys._getframe()))
    print(json.dumps({"pthread": threading.get_ident(), "stack": stack}), flush=True)
    sys.stdin.readline()


class Größe:
    def wächst(self):
        def calls(each):
            return waits(each)

        # A function of C is between these: another call of the interpreter's.
        return list(map(calls, [1]))


def 値段():
    yield from Größe().wächst()


def begins():
    # An emoji needs four bytes a letter.
    code = compile("\n\ndef run():\n    return list(値段())\nrun()", "made \N{OCTOPUS}.py", "exec")
    exec(code, {"値段": 値段})


thread = threading.Thread(target=begins)
thread.start()
thread.join()

"""Level 3: `torch.compiler.disable` on the quantizer, the usual advice; a graph break, which fullgraph forbids."""

import torch

NAME = "compiler-disable"
KNOWN = {
    "fp4_quantize": {
        "35403815f78d2bd5e2feb9f88843708f156e51bc3b60c64891f581a4fa978e52": "0.6.1, 0.6.3, 0.6.7.post3",
        "7bc92c75cf68627f9f3ac0da7e65505358a7bf8705d110fecce50dab43b013f6": "0.7.2",
        "b03b8c7cf4216511e8a28eca2fd0ca4dc7d1121ee771da7737e0b6fd5eba6a37": "0.6.11.post1",
        "b500ecb5e462f477976cfb4ef6c7605bbcb1779fd1ae9d9584d43cc97b772746": "0.7.4",
        "c1556058ee43a143b5341f380385fb5a138e745fe93df2222b933af41375a60e": "0.6.14, 0.6.18",
    },
}


def replace(module):
    return {"fp4_quantize": torch.compiler.disable(module.fp4_quantize)}


def patched_source(name, source):
    return "@torch.compiler.disable\n" + source

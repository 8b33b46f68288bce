"""SGLang's own model runner with its steps on hardware left out, up to the compile step of its piecewise capture.

What loads the model, sizes the pools, decides whether to capture, collects the layers, makes the forward batch and
compiles is the installed code. Left out or stood in for is what would run a kernel.
"""

from collections.abc import Callable
from contextlib import suppress

from workbook_overlay.passing import watch

from workbook_foresee import stops
from workbook_foresee.answers import answered, unanswered
from workbook_foresee.kernels import idle_kernels, note


class Reached:
    """How far a run came, and what it met on the way."""

    def __init__(self, end_phase: Callable[[str], None]) -> None:
        self._end_phase = end_phase
        self.stage = "set up"
        self.capture_sizes: list[int] = []
        self.compiled_sizes: list[int] = []
        self.graphs: list[tuple[object, object]] = []  # (SGLangBackend, the graph it was given)
        self.graphs_of_model: int | None = None  # what is made after a stop is not of the model as it is
        self.stops: list[dict] = []
        self.seen: dict = {}
        self.weights_gib = 0.0
        self.model = None
        self.num_layers = 0
        self.num_tokens = 0
        self.unplanned = ""  # the attention backend's class where it could not plan
        self.piecewise = None
        self.warming = self.installed = self.enough = False
        self.compiled_module = None
        self.install: Callable[[], object] = lambda: None

    def to(self, stage: str) -> None:
        self._end_phase(self.stage)
        self.stage = stage


def start(server_args, rank: int, reached: Reached):
    """Construct SGLang's model runner as rank `rank` of the server's group; what it raises is the caller's to judge.

    Args:
        server_args: SGLang's, from its own command line.
        reached: is kept up to date.
    """
    import torch
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.model_executor import model_runner as runners

    total_gib = torch.cuda.mem_get_info()[0] / 2**30

    def free_memory(*_args, **_kwargs) -> float:
        return total_gib - reached.weights_gib

    runners.get_available_gpu_memory = free_memory
    _place_experts_on_cpu(runners)
    _compile_without_capture(runners, reached)
    _keep_graphs(reached)

    class Runner(runners.ModelRunner):
        """The steps of SGLang's runner, those on hardware left out."""

        def load_model(self):
            reached.to("load")
            with idle_kernels():
                super().load_model()
            reached.weights_gib = (
                sum(one.numel() * one.element_size() for one in self.model.parameters()) / 2**30
            )
            reached.model, reached.num_layers = self.model, self.model_config.num_hidden_layers
            reached.to("pools")

        def init_cublas(self):
            pass

        def kernel_warmup(self):
            note("kernel warm-up and autotuning: left out")

        def _pre_initialize_flashinfer_allreduce_workspace(self):
            pass

        def init_attention_backend(self):
            reached.to("attention backend")
            super().init_attention_backend()
            plan = self.attn_backend.init_forward_metadata

            def plan_without_kernels(forward_batch):
                try:
                    with idle_kernels(), answered(lambda: reached.num_tokens):
                        plan(forward_batch)
                    reached.unplanned = ""
                    note("attention backend: SGLang's own, planned on kernels that do nothing")
                except Exception as error:
                    said = f"{type(error).__name__}: {error}".splitlines()[0]
                    reached.unplanned = type(self.attn_backend).__name__
                    note(f"attention backend: SGLang's own, its planning left out ({said[:200]})")

            self.attn_backend.init_forward_metadata = plan_without_kernels

        def init_device_graphs(self):
            reached.to("piecewise")
            self.graph_runner, self.graph_mem_usage = None, 0
            note("decode graphs: not captured")

    model_config = ModelConfig.from_server_args(server_args)
    return Runner(
        model_config=model_config,
        mem_fraction_static=server_args.mem_fraction_static,
        gpu_id=0,
        tp_rank=rank,
        tp_size=server_args.tp_size,
        moe_ep_rank=rank // (server_args.tp_size // server_args.ep_size),
        moe_ep_size=server_args.ep_size,
        pp_rank=0,
        pp_size=1,
        nccl_port=0,
        server_args=server_args,
    )


def _compile_without_capture(runners, reached: Reached) -> None:
    """The piecewise runner compiles, but not at every size, and captures nothing."""
    from sglang.srt.model_executor import piecewise_cuda_graph_runner as piecewise

    install = piecewise.install_torch_compiled

    def warm_up_and_install(module, **kwargs):
        _warm_up(reached)
        reached.installed, reached.compiled_module = True, module
        reached.install = lambda: install(module, **kwargs)
        return reached.install()

    piecewise.install_torch_compiled = warm_up_and_install

    class Piecewise(runners.PiecewiseCudaGraphRunner):
        def __init__(self, model_runner):
            reached.piecewise = self
            super().__init__(model_runner)

        def _compile(self, step, num_tokens: int):
            reached.num_tokens = num_tokens
            reached.capture_sizes = list(self.capture_num_tokens)
            if not reached.installed:
                return step(self, num_tokens=num_tokens) if reached.warming else None
            if num_tokens == self.capture_num_tokens[-1]:  # the first that the runner asks for
                self._trace(step)
            return None

        def _trace(self, step) -> None:
            """A few layers at the largest and the smallest size, which shows every stop; then the whole model once."""
            sizes = self.capture_num_tokens[-1], self.capture_num_tokens[0]
            with unanswered():
                with stops.few_layers(self.model_runner.model) as few:
                    for num_tokens in sizes:
                        reached.to(f"trace {few or 'all'} layers at {num_tokens} tokens")
                        self._step(step, num_tokens)
                        reached.compiled_sizes.append(num_tokens)
                if few < reached.num_layers:
                    reached.to(f"trace all layers at {sizes[0]} tokens")
                    self._trace_whole(step, sizes[0])

        def _trace_whole(self, step, num_tokens: int) -> None:
            import torch

            reached.graphs.clear()
            torch._dynamo.reset()
            reached.install()  # as for the first time: what is known of the few layers is forgotten
            reached.enough = True
            with suppress(Enough):
                self._step(step, num_tokens)

        def _step(self, step, num_tokens: int) -> None:
            """The runner's own step; where Dynamo stops it, all that comes after is looked for."""
            try:
                step(self, num_tokens=num_tokens)
            except Exception as error:
                reached.enough = False
                reached.stops = self._stops(error, step, num_tokens)
                raise

        def _stops(self, error, step, num_tokens):
            import torch

            def again():
                reached.to("find what comes after")
                torch._dynamo.reset()
                step(self, num_tokens=num_tokens)

            def warm_up():
                compiled = vars(reached.compiled_module).pop("forward")  # SGLang's, which would trace
                try:
                    with answered(lambda: reached.num_tokens):
                        _warm_up(reached, again=True)
                finally:
                    reached.compiled_module.forward = compiled

            if not type(error).__module__.startswith("torch._dynamo"):
                return []
            reached.graphs_of_model = len(reached.graphs)
            return stops.all_of(error, again, warm_up, self.model_runner.model, reached)

        def capture(self):
            reached.to("compiled")

    name = "warmup_compile" if hasattr(Piecewise, "warmup_compile") else "warmup_torch_compile"  # up to 0.5.9
    step = getattr(Piecewise, name)
    setattr(Piecewise, name, lambda self, num_tokens: self._compile(step, num_tokens))
    runners.PiecewiseCudaGraphRunner = Piecewise


def _warm_up(reached: Reached, *, again: bool = False) -> None:
    """An eager forward, as a server has run some by the time it compiles; where it stops without kernels, it stops.

    Those are of its decode graphs' capture; a server that captures none compiles in a cold process. SGLang 0.5.12 runs
    the model once itself at this place, in the runner's own context: what fails there whatever the kernels do, fails
    there on a GPU too.
    """
    runner = reached.piecewise
    runs_it_itself = hasattr(runner, "warmup_compile")
    server = runner.model_runner
    if not runs_it_itself and (not server.is_generation or server.server_args.disable_cuda_graph):
        note("eager warm-up: none, since this server captures no decode graphs before")
        return
    step = runner.warmup_compile if runs_it_itself else runner.warmup_torch_compile
    reached.warming, installed, reached.installed = True, reached.installed, False
    reached.to("eager warm-up")
    try:
        with idle_kernels(), stops.few_layers(runner.model_runner.model), watch() as reached.seen:
            step(runner.capture_num_tokens[0])
        note("eager warm-up: the model's forward once, on kernels that do nothing")
    except Exception as error:
        if runs_it_itself and not again and stops.wrongly_called(error):
            reached.stops = [stops.eager(error)]
            raise
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        note(f"eager warm-up: stopped without kernels at {said[:200]}")
    finally:
        reached.warming, reached.installed = False, installed


class Enough(BaseException):
    """The graph of the whole model is there; what a second pass would compile again was seen on a few layers."""


def _keep_graphs(reached: Reached) -> None:
    from sglang.srt.compilation import backend

    call = backend.SGLangBackend.__call__

    def keep(self, graph, example_inputs):
        reached.graphs.append((self, graph))
        compiled = call(self, graph, example_inputs)
        if reached.enough:
            raise Enough
        return compiled

    backend.SGLangBackend.__call__ = keep


def _place_experts_on_cpu(runners) -> None:
    """SGLang's table of which expert lies where is computed from values, so on real tensors; its shapes go on."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    compute = runners.compute_initial_expert_location_metadata

    def place(server_args, **rest):
        device = server_args.device
        with _disable_current_modes():
            server_args.device = "cpu"
            found = compute(server_args, **rest)
            server_args.device = device
        for name, value in list(vars(found).items()) if found is not None else ():
            if isinstance(value, torch.Tensor):
                object.__setattr__(found, name, torch.empty(value.shape, dtype=value.dtype, device=device))
        return found

    runners.compute_initial_expert_location_metadata = place

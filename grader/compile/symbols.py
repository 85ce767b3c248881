"""What an object file calls -> the calls that a kata may not make, in words.

A kata is to be solved by a kernel of one's own. So the names that nvcc leaves open in the learner's object, before any
library is linked to it, must be on a list: the C, C++ and mathematical libraries, the CUDA runtime, and the libraries
that the kata is about. What is not there is refused before anything runs: another library's kernels, loading one at run
time, threads, programs. It looks at calls, never at words in the text.

This stops accidental use. It does not stop a system call that is written in assembly.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.compile.libraries import allowed_headers, library_of_header
from grader.content.source_file import first_line_with

# -- what every kata may call

_MEMORY = "memchr memcmp memcpy memmove mempcpy memset malloc calloc realloc free aligned_alloc posix_memalign"
_STRINGS = """
    strcat strchr strcmp strcpy strcspn strdup strlen strncat strncmp strncpy strnlen strpbrk strrchr strspn strstr
    strtok strtod strtof strtol strtold strtoll strtoul strtoull strerror strcasecmp atof atoi atol atoll
    isalnum isalpha isdigit isspace isupper islower ispunct isxdigit tolower toupper
"""
_OUTPUT = """
    printf fprintf sprintf snprintf vprintf vfprintf vsprintf vsnprintf puts fputs putchar putc fputc fwrite fflush
    perror write sscanf fopen fclose fread fgets fseek ftell setvbuf stdout stderr stdin remove
"""
# How a process ends, or leaves another behind, is for the sandbox to see and to clear up.
_PROCESS = """
    abort exit _exit _Exit quick_exit atexit at_quick_exit fork pause close getpid getenv raise signal sleep usleep
    nanosleep clock clock_gettime gettimeofday time sched_yield sysconf
"""
_OTHER = """
    qsort bsearch rand srand rand_r random srandom drand48 abs labs llabs div ldiv lldiv setjmp longjmp _setjmp
    stack_chk_fail __stack_chk_fail __assert_fail __errno_location __libc_single_threaded __tls_get_addr __dso_handle
    __gxx_personality_v0 _GLOBAL_OFFSET_TABLE_ __gmon_start__ environ __environ program_invocation_name
"""
_MATHEMATICS = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim floor fma
    fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround
    modf nan nearbyint nextafter nexttoward pow remainder remquo rint round scalbln scalbn sin sincos sinh sqrt tan tanh
    tgamma trunc y0 y1 yn
"""
_NAMES = frozenset(
    f"{_MEMORY} {_STRINGS} {_OUTPUT} {_PROCESS} {_OTHER}".split()
    + [name + suffix for name in _MATHEMATICS.split() for suffix in ("", "f", "l")]
)
_PATTERNS = re.compile(
    "|".join(
        (
            r"_{0,2}cuda[A-Z]\w*",  # the CUDA runtime
            r"_Zn[aw]\w*|_Zd[al]\w*",  # new and delete
            r"_Z(TH|GV|GR|T[ISTVW])?(N[VK]*)?S[tsoiabd]\w*",  # the standard library's namespace
            r"_Z(T[ISTV])?N[VK]*(10__cxxabiv1|9__gnu_cxx)\w*",
            r"_ZT[IS]\w{1,3}",  # types of the language itself
            r"__cxa_\w+|_Unwind_\w+|_ITM_\w+|__gthrw_\w+|__once_\w+",
            r"pthread_(mutex|once|key|cond|rwlock|self|equal|getspecific|setspecific)\w*|__pthread_key_create",
            r"__(isoc\d+|libc|ctype|printf|[a-z]+)_\w+|__\w+_chk|__(isnan|isinf|finite|signbit|fpclassify)[fl]?",
        )
    )
)
# Copies and launches that the grader does not follow, by all their names for the linker. It follows graphs of what
# streams captured.
_UNFOLLOWED = (
    r"cuda(Graph(?!(Instantiate(WithFlags)?|Upload|Launch|(Exec)?Destroy)$)|StreamBeginCaptureTo)\w*"
    r"|cuda(GetDriverEntryPoint|Import|IpcOpen|StreamUpdateCapture|ThreadExchangeStreamCapture)\w*|cudaMemset3D\w*|_{0,2}cuda[A-Z]\w*_pt[ds][sz]"
    r"|cudaMemcpy(?!(2D|ToSymbol|FromSymbol)?(Async)?(_|$))\w*|cublas[GS]et(Vector|Matrix)\w*"
)
_NEVER = re.compile(
    rf"_ZNSt6thread(?!20hardware_concurrency)\w*|_ZNSt\d+_?_?(async|jthread)\w*|__(real|wrap)_\w+|{_UNFOLLOWED}"
)
# What a file may not define: the CUDA runtime's names, and what the grader links to a library for a GPU.
_TAKEN = re.compile(r"cuda[A-Z]\w*|__cuda[A-Z]\w*Kernel\w*|__(real|wrap)_\w+|kata_(take_\w+|next_call)")

# -- what some katas may call

# What the entry-point function answers is for who runs the file: the simulator, and the probe on a GPU.
_ENTRY_POINT = re.compile(r"cudaGetDriverEntryPoint(ByVersion)?")
_OF_LIBRARY = {
    "cublas": re.compile(r"cublas[A-Z]\w*"),
    "cutlass": re.compile(r"(?!)"),
    "driver": re.compile(r"cuTensorMapEncode(Tiled|Im2col)|cuGetErrorString|cuGetErrorName|cuDriverGetVersion"),
}

# -- what is behind a name that no kata may call

_MEANINGS = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (_UNFOLLOWED, "copies or launches that the grader does not follow"),
        (r"__(real|wrap)_\w+|kata_\w+", "the grader's own"),
        (r"cublas\w*", "cuBLAS"),
        (r"cudnn\w*", "cuDNN"),
        (r"(cufft|cusolver|cusparse|curand|cutensor|nvrtc|nvJitLink|nccl)\w*", "a library of NVIDIA's"),
        (r"cu[A-Z]\w*", "the CUDA driver's interface"),
        (r"dl\w+|__libc_dl\w+", "loading a library at run time"),
        (r"pthread_create|thrd_create|_ZNSt\w*", "starting a thread"),
        (r"system|popen|posix_spawn\w*|exec\w*|vfork|clone|wordexp", "running a program"),
        (r"m(map|protect|remap)|shm_\w+|syscall|ptrace|process_vm_\w+", "the operating system"),
    )
)


@dataclass(frozen=True)
class Refusal:
    """One thing that a file may not do: the sentence, and the line of the file that does it, if found."""

    message: str
    line: int | None


@dataclass(frozen=True)
class Names:
    """The global names of an object, in order."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def names_of(object_file: Path) -> Names:
    """Raises OSError without nm."""
    listed = subprocess.run(["nm", "-g", str(object_file)], capture_output=True, text=True, check=True)
    lines = [line.split() for line in listed.stdout.splitlines() if line.strip()]  # an address, where there is one
    by_kind = [sorted(words[-1] for words in lines if (words[-2] in "Uwv") == wanted) for wanted in (False, True)]
    return Names(*map(tuple, by_kind))


def refused_call(names: Names, source: str, libraries: tuple[str, ...]) -> Refusal | None:
    """The first call of the object that a kata with these libraries may not make."""
    refused = [name for name in names.undefined if not may_call(name, libraries)]
    if not refused:
        return None
    shown = {name: _readable(name) for name in refused}
    places = {name: _line_of(shown[name], source) for name in refused}
    first = min(refused, key=lambda name: (_meaning(name) == "", places[name] is None, places[name] or 0))
    meaning = _meaning(first)
    allowed = ["C, C++ and their mathematics", "the CUDA runtime", *sorted(allowed_headers(libraries))]
    message = (
        f"calls {shown[first]}{f' ({meaning})' if meaning else ''}, which this kata does not allow;"
        f" it may call {', '.join(allowed[:-1])} and {allowed[-1]}"
    )
    return Refusal(message, places[first])


def refused_definition(names: Names, source: str) -> Refusal | None:
    """The first name that the object defines and that is the CUDA runtime's or the grader's."""
    taken = [name for name in names.defined if _TAKEN.fullmatch(name)]
    if not taken:
        return None
    whose = "the CUDA runtime's" if re.match("_*cuda", taken[0]) else "the grader's"
    return Refusal(f"defines {taken[0]}, which is {whose} name", _line_of(taken[0], source))


def may_call(name: str, libraries: tuple[str, ...] = ()) -> bool:
    """Is a symbol (mangled, as the object has it) on the list?"""
    name = name.partition("@")[0]
    if "driver" in libraries and _ENTRY_POINT.fullmatch(name):
        return True
    if _NEVER.fullmatch(name):
        return False
    if name in _NAMES or _PATTERNS.fullmatch(name):
        return not name.startswith("__libc_dl")
    return any(_OF_LIBRARY[library].fullmatch(name) for library in libraries)


def refused_header(
    listed: str,
    own: Iterable[Path],
    source: str,
    libraries: tuple[str, ...],
    *,
    solutions: Path,
    within: Iterable[Path] = (),
) -> Refusal | None:
    """The first included file of a library that the kata does not have, or of the folder of ``solutions``, or, where
    there are folders in ``within``, that lies in none of them.

    ``listed`` is what nvcc -MD wrote; files below one of ``own`` are the learner's or the grader's.
    """
    folders, solutions = {folder.resolve() for folder in own}, solutions.resolve()
    allowed = {folder.resolve() for folder in within}
    above: dict[str, frozenset[Path]] = {}  # of a folder, with itself: some hundred headers are in a few of them
    titles: dict[str, str | None] = {}
    for name in dependencies(listed):
        if not os.path.isabs(name):
            continue
        folder, base = os.path.split(name)
        if folder not in above:
            real = Path(folder).resolve()
            above[folder], titles[folder] = frozenset((real, *real.parents)), library_of_header(name)
        inside = frozenset(Path(name).resolve().parents) if os.path.islink(name) else above[folder]
        if not folders.isdisjoint(inside):
            continue
        if solutions in inside:
            return Refusal(f"includes {base} of the solutions", _line_of_include(base, base, source))
        if allowed and allowed.isdisjoint(inside):
            message = f"includes {base}, which is outside the submission"
            return Refusal(message, _line_of_include(base, base, source))
        title = titles[folder]
        if title is None or title in allowed_headers(libraries):
            continue
        shown = f"{os.path.basename(folder)}/{base}"
        message = f"includes {shown} of {title}, which this kata does not allow"
        return Refusal(message, _line_of_include(shown, base, source))
    return None


def dependencies(text: str) -> Iterator[str]:
    """The files in what nvcc -MD wrote, as it spelled them, but for what leads nowhere in a path."""
    _, _, files = text.partition(" : ")
    for word in re.findall(r"(?:\\ |[^\s\\])+", files):
        yield plain_path(word.replace("\\ ", " "))


def plain_path(path: str) -> str:
    """Without `.` and `//`; a `..` stays, which a link before it may lead elsewhere."""
    return str(Path(path)) if "/." in path or "//" in path or path.startswith("./") else path


def _meaning(name: str) -> str:
    return next((meaning for pattern, meaning in _MEANINGS if pattern.fullmatch(name)), "")


def demangled(name: str) -> str:
    """A C++ name without its mangling and parameters: ``scan<32>``; as it is where it is none, or c++filt missing."""
    if not name.startswith("_Z") or shutil.which("c++filt") is None:
        return name
    return subprocess.run(["c++filt", "-p", name], capture_output=True, text=True).stdout.strip() or name


def _readable(name: str) -> str:
    """A name as it is written in a call, without the _v2 that headers add to a C name."""
    plain = demangled(name)
    return re.sub(r"_v\d+(_ptsz)?$", "", name) if plain == name else re.sub(r"<.*>|\[.*\]", "", plain) or name


def _line_of(name: str, source: str) -> int | None:
    """The first line that has the name, or what stands before its last ::."""
    base = name.split("::")
    words = [name, f"{name}_v2"] if len(base) == 1 else [base[-2], base[-1]]
    return next((line for word in words if (line := first_line_with(word, source))), None)


def _line_of_include(name: str, base: str, source: str) -> int | None:
    """The line that includes the file, or else the only thing to point at: the first line that names its library."""
    lines = [(number, line) for number, line in enumerate(source.splitlines(), 1) if line.lstrip().startswith("#")]
    for wanted in (name, base, name.split("/")[0] + "/", name.split("/")[0]):
        for number, line in lines:
            if wanted in line:
                return number
    return None

"""The one thing pyproject.toml cannot say: the record kernel is compiled where a C compiler is at hand.

The extension is optional. Without a compiler the wheel carries the pure-Python twin alone, which serves
the same interface and says so when it is loaded (see barnabas/records/kernel.py).
"""

from glob import glob

from setuptools import Extension, setup

kernel = Extension(
    "barnabas.records._kernel",
    sources=["src/barnabas/records/_kernel.pyx"],
    depends=sorted(glob("src/barnabas/records/*.h") + glob("src/barnabas/records/*.pxi")),
    extra_compile_args=["-O3", "-g0"],
    optional=True,
)

setup(ext_modules=[kernel])

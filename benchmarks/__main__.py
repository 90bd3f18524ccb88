"""Run all benchmarks: `make bench`. Times are CPU time; ratios are of one run on one machine."""

from __future__ import annotations

import platform
import sysconfig

from benchmarks import combinatorial, samba
from benchmarks.first_answer import first_answer
from benchmarks.measure import cpu
from posse.privacy.crypto.paillier import generate_key


def paillier() -> None:
    """Times of the final sum's cryptography, apart from the steps."""
    print("\nPaillier          key s   encrypt ms   decrypt ms   add us")
    for bits in (2048, 3072):
        made = cpu(lambda bits=bits: generate_key(bits), 2)  # type: ignore[misc]
        key = generate_key(bits)
        public = key.public_key
        ciphertext = public.encrypt(1)
        times = (
            cpu(lambda public=public: public.encrypt(7), 5) * 1e3,  # type: ignore[misc]
            cpu(lambda key=key, ciphertext=ciphertext: key.decrypt(ciphertext), 5) * 1e3,  # type: ignore[misc]
            cpu(lambda ciphertext=ciphertext: ciphertext + ciphertext, 20) * 1e6,  # type: ignore[misc]
        )
        print(
            f"  {bits} bits     {made:>7.2f} {times[0]:>12.1f} {times[1]:>12.1f} {times[2]:>8.0f}"
        )


def main() -> None:
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    build = "profile-guided" if optimised else "not profile-guided"
    print(f"Python {platform.python_version()} ({build} build), {platform.machine()}; CPU time\n")
    key = generate_key(2048)
    samba.costs(key)
    samba.levels(key)
    samba.simulator()
    samba.in_use()
    samba.scaling(key)
    samba.memory(key)
    paillier()
    combinatorial.speed()
    combinatorial.agents()
    combinatorial.memory()
    first_answer()


if __name__ == "__main__":
    main()

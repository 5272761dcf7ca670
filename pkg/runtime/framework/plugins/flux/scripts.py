# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The two scripts of a Flux TrainJob: one installs Flux in a shared volume, the other starts Flux and the program.

The second script contains the whole command line of the program. It does not use the arguments of the container,
because a shell would split them again.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Final

import msgspec

_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
"""Matches a reference ``$(NAME)``, as the kubelet resolves it in command and args, or an escaped dollar sign."""


class Cluster(msgspec.Struct, frozen=True):
    """One Flux cluster: a broker on each node."""

    job: str
    subdomain: str
    namespace: str
    nodes: int
    tasks: int
    """Processes on each node."""
    gpus: int
    """GPUs of each node."""
    device: str
    """The network device of the brokers."""
    queue_policy: str

    @property
    def hosts(self) -> str:
        """The brokers' host names, in the notation of Flux."""
        return f"{self.job}-node-0-[{_range(self.nodes)}]"


def init_script(cluster: Cluster) -> str:
    """Return the script of the init container."""
    return _INIT.format(main_host=f"{cluster.job}-0", hosts=cluster.hosts, broker=_broker(cluster))


def entrypoint(cluster: Cluster, command: Iterable[str]) -> str:
    """Return the script of the trainer's container.

    The script starts the brokers and, if ``command`` is not empty, runs ``command``.
    """
    flags = f"-N {cluster.nodes} -n {cluster.nodes * cluster.tasks}"
    resources = f"--cores={_range(cluster.tasks)}"
    if cluster.gpus > 0:
        flags += f" -g {cluster.gpus}"
        resources += f" --gpu={_range(cluster.gpus)}"
    return _ENTRYPOINT.format(
        main_host=f"{cluster.job}-node-0-0",
        flags=flags,
        resources=resources,
        command="".join(f" {_word(word)}" for word in command),
    )


def _broker(cluster: Cluster) -> str:
    domain = f"{cluster.subdomain}.{cluster.namespace}.svc.cluster.local"
    return _BROKER.format(
        bind=json.dumps(f"tcp://{cluster.device}:%p"),
        connect=json.dumps(f"tcp://%h.{domain}:%p"),
        hosts=cluster.hosts,
        policy=json.dumps(cluster.queue_policy),
    )


def _range(size: int) -> str:
    return "0" if size == 1 else f"0-{size - 1}"


def _word(word: str) -> str:
    """Return a word quoted for bash, so that bash resolves ``$(NAME)`` as the kubelet does.

    References to unknown variables stay as they are.
    """
    parts: list[str] = []
    end = 0
    for found in _REFERENCE.finditer(word):
        parts.append(_quoted(word[end : found.start()]))
        parts.append(_quoted("$") if found[1] is None else f'"${{{found[1]}-\\$({found[1]})}}"')
        end = found.end()
    parts.append(_quoted(word[end:]))
    return "".join(parts) or "''"


def _quoted(text: str) -> str:
    return shlex.quote(text) if text else ""


_BROKER: Final = """\
[access]
allow-guest-user = true
allow-root-owner = true

[resource]
path = "/mnt/flux/config/etc/flux/system/R"

[bootstrap]
curve_cert = "/mnt/flux/config/etc/curve/curve.cert"
default_port = 8050
default_bind = {bind}
default_connect = {connect}
hosts = [
  {{ host="{hosts}" }},
]

[archive]
dbpath = "/mnt/flux/config/var/lib/flux/job-archive.sqlite"
period = "1m"
busytimeout = "50s"

[sched-fluxion-qmanager]
queue-policy = {policy}
"""

_INIT: Final = """\
#!/bin/bash
# Copies Flux from the image to the shared volume, and writes the configuration of its broker.
set -e
fluxroot=/opt/view
mainHost={main_host}
hosts="{hosts}"
volume=/mnt/flux
config=${{volume}}/config

echo "Installing ${{fluxroot}} for the Flux cluster of ${{mainHost}}"
mkdir -p ${{volume}}/view ${{config}}/etc/flux/config ${{config}}/etc/flux/system/cron.d \\
  ${{config}}/etc/curve ${{config}}/var/lib/flux ${{config}}/run/flux
echo "${{hosts}}" > ${{config}}/etc/flux/system/hostlist
cat > ${{config}}/etc/flux/config/broker.toml <<'END_OF_BROKER'
{broker}END_OF_BROKER

# /opt/view is a link to the folder below /opt/views/._view, whose files are links into /opt/software.
cp -R /opt/views/._view/*/. ${{volume}}/view
cp -R /opt/software ${{volume}}/
"""

_ENTRYPOINT: Final = """\
#!/bin/bash
# Starts a broker of Flux on this node; the first node runs the program of the TrainJob on all of them.
set --{command}
mainHost="{main_host}"
flags="{flags}"

volume=/mnt/flux
view=${{volume}}/view
config=${{volume}}/config
state=${{config}}/var/lib/flux

# The links of the view point to /opt/software. The image's own programs come first.
cp -R ${{volume}}/software/. /opt/software/
export PATH=${{PATH}}:${{view}}/bin

# Flux needs the Python that it was built with.
for packages in ${{view}}/lib/python3.*; do
  python=${{view}}/bin/$(basename "${{packages}}")
  if [[ -f "${{python}}" ]]; then
    ln -sf "${{python}}" ${{view}}/bin/python3
    ln -sf "${{python}}" ${{view}}/bin/python
  fi
  export PYTHONPATH=${{PYTHONPATH:-}}:${{packages}}/site-packages
done
export FLUX_RC_EXTRA=${{view}}/etc/flux/rc1.d

cat > ${{volume}}/load-fluxion.sh <<'END_OF_FLUXION'
flux module remove sched-simple
flux module load sched-fluxion-resource
flux module load sched-fluxion-qmanager
END_OF_FLUXION
cat > ${{volume}}/flux-view.sh <<END_OF_VIEW
#!/bin/bash
export PATH=${{PATH}}
export PYTHONPATH=${{PYTHONPATH:-}}
export LD_LIBRARY_PATH=${{LD_LIBRARY_PATH:-}}:${{view}}/lib
export fluxsocket=local://${{config}}/run/flux/local
END_OF_VIEW

# The broker accepts only a certificate that no other user can read.
install -m 600 /curve/curve.cert ${{config}}/etc/curve/curve.cert

hosts=$(cat ${{config}}/etc/flux/system/hostlist)
flux R encode --hosts=${{hosts}} {resources} > ${{config}}/etc/flux/system/R

export STATE_DIR=${{state}}
export FLUX_OUTPUT_DIR=/tmp/fluxout
mkdir -p ${{state}} ${{FLUX_OUTPUT_DIR}} ${{config}}/etc/flux/system/cron.d
options=(
  "-Scron.directory=${{config}}/etc/flux/system/cron.d"
  "-Stbon.fanout=256"
  "-Srundir=${{config}}/run/flux"
  "-Sstatedir=${{state}}"
  "-Slocal-uri=local://${{config}}/run/flux/local"
  "-Slog-stderr-level=0"
  "-Slog-stderr-mode=local"
)

if [[ "$(hostname)" == "${{mainHost}}" ]]; then
  if [[ $# -eq 0 ]]; then
    exec flux broker --config-path ${{config}}/etc/flux/config "${{options[@]}}"
  fi
  exec flux start -o --config ${{config}}/etc/flux/config "${{options[@]}}" flux run ${{flags}} "$@"
fi

# A broker that starts before the first one fails, and is started again.
until flux start -o --config ${{config}}/etc/flux/config "${{options[@]}}"; do
  echo "The broker ended with $?; the next one starts in 15 seconds."
  sleep 15
done
"""

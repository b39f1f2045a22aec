#!/usr/bin/env bash
# A real Slurm of virtual nodes with 4 GPU resources each, on this machine's loopback, with its own munge.
#   cluster.sh start DIR [NODES]   start it (4 nodes by default); then: export SLURM_CONF=DIR/slurm.conf
#   cluster.sh stop DIR            stop exactly the processes that were started for DIR
# Needs Debian's slurm-wlm and munge. Ports are free ones, chosen at the start; nothing outside DIR is written.
set -euo pipefail

die() { echo "cluster.sh: $*" >&2; exit 1; }

free_ports() { # free_ports N: N consecutive free ports
  python3 - "$1" <<'PY'
import random, socket, sys
count = int(sys.argv[1])
for _ in range(200):
    first = random.randrange(40000, 60000)
    sockets = []
    try:
        for port in range(first, first + count):
            sockets.append(socket.create_server(("127.0.0.1", port)))
    except OSError:
        continue
    finally:
        for opened in sockets:
            opened.close()
    print(first)
    break
PY
}

write_config() { # write_config DIR NODES PORT
  local dir=$1 nodes=$2 port=$3 user host
  user=$(id -un) host=$(hostname -s)
  cat > "$dir/slurm.conf" <<CONF
ClusterName=nlpbench-sandbox
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
SlurmUser=$user
SlurmdUser=$user
SlurmctldPort=$port
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2
ReturnToService=2
GresTypes=gpu
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/log/jobcomp.log
MinJobAge=600
KillWait=10
SlurmdTimeout=30
NodeName=node[1-$nodes] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] CPUs=$(nproc) RealMemory=1000 Gres=gpu:4
PartitionName=booster Nodes=node[1-$nodes] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
  printf 'AutoDetect=off\nNodeName=node[1-%s] Name=gpu File=%s/dev/gpu[0-3]\n' "$nodes" "$dir" > "$dir/gres.conf"
}

start_munge() { # start_munge DIR
  local dir=$1/munge
  install -d -m 0711 "$dir"
  (umask 077; head -c 1024 /dev/urandom > "$dir/key")
  munged --force --socket="$dir/socket" --key-file="$dir/key" --pid-file="$dir/munged.pid" \
    --log-file="$dir/log" --seed-file="$dir/seed" 2>/dev/null
}

start() { # start DIR NODES
  local dir nodes=$2 port
  for tool in slurmctld slurmd munged; do
    command -v "$tool" >/dev/null || die "$tool is missing; on Debian: apt-get install slurm-wlm munge"
  done
  mkdir -p "$1" && dir=$(cd "$1" && pwd)
  case $dir in *[[:space:]]*) die "Slurm's own configuration takes no folder with a space: $dir" ;; esac
  mkdir -p "$dir"/{state,spool,log,dev}
  touch "$dir"/dev/gpu{0..3}
  port=$(free_ports $((nodes + 1)))
  write_config "$dir" "$nodes" "$port"
  start_munge "$dir"
  export SLURM_CONF=$dir/slurm.conf
  slurmctld -f "$SLURM_CONF"
  for ((node = 1; node <= nodes; node++)); do slurmd -N "node$node" -f "$SLURM_CONF"; done
  for ((try = 0; try < 120; try++)); do
    [[ $(sinfo -h -t idle -o %D 2>/dev/null | head -n 1) == "$nodes" ]] && { echo "$SLURM_CONF"; return; }
    sleep 0.25
  done
  die "the nodes did not become idle; see $dir/log"
}

stop() { # stop DIR
  local dir file pid pids=()
  dir=$(cd "$1" && pwd)
  export SLURM_CONF=$dir/slurm.conf
  timeout 10 scancel --user="$(id -un)" 2>/dev/null || true # running jobs would outlive their daemons
  for ((try = 0; try < 60; try++)); do
    [[ -n $(timeout 10 squeue --noheader 2>/dev/null) ]] || break
    sleep 0.25
  done
  for file in "$dir"/slurmd-*.pid "$dir/slurmctld.pid" "$dir/munge/munged.pid"; do
    [[ ! -s $file ]] || pids+=("$(<"$file")")
  done
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for ((try = 0; try < 50; try++)); do
    kill -0 "${pids[@]}" 2>/dev/null || break # false once the last of them is gone
    sleep 0.1
  done
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
}

case ${1:-} in
  start) start "${2:?folder}" "${3:-4}" ;;
  stop) stop "${2:?folder}" ;;
  *) die "usage: cluster.sh start DIR [NODES] | cluster.sh stop DIR" ;;
esac

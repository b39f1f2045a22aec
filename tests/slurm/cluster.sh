#!/usr/bin/env bash
# A real Slurm of virtual nodes with 4 GPU resources each, on this machine's loopback, with its own munge.
#   cluster.sh start DIR [NODES [LINES]]   start it (4 nodes by default); then: export SLURM_CONF=DIR/slurm.conf
#                                          LINES: a file of lines for slurm.conf, each in the place of ours with its key
#   cluster.sh stop DIR            stop exactly the processes that were started for DIR
# Needs Debian's slurm-wlm and munge. Ports are free ones, chosen at the start, others if somebody was faster; nothing outside DIR
# is written.
set -euo pipefail

die() { echo "cluster.sh: $*" >&2; exit 1; }

free_ports() { # free_ports N: N consecutive free ports, below those that Linux gives to outgoing connections (from 32768)
  python3 - "$1" <<'PY'
import random, socket, sys
count = int(sys.argv[1])
for _ in range(200):
    first = random.randrange(10000, 20000 - count)
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

override() { # override CONF LINES: a line replaces the one with its key, a partition the one of its name
  local line key
  while IFS= read -r line; do
    [[ -n $line ]] || continue
    key=${line%%=*}=
    [[ $key != PartitionName= ]] || key="${line%% *} "
    sed -i "/^$key/d" "$1"
    echo "$line" >> "$1"
  done < "$2"
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
MessageTimeout=30
SlurmdTimeout=30
NodeName=node[1-$nodes] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] CPUs=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) RealMemory=1000 Gres=gpu:4
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

answers() { # answers DIR: wait until the controller answers; false once it has given up
  for ((try = 0; try < 240; try++)); do
    if grep -aqs 'fatal' "$1/log/slurmctld.log"; then return 1; fi
    if [[ -s $1/slurmctld.pid && $(timeout 5 scontrol ping 2> /dev/null) == *"is UP"* ]]; then return; fi
    sleep 0.25
  done
  return 1
}

idle() { # idle NODES: wait until so many nodes are idle
  for ((try = 0; try < 480; try++)); do
    [[ $(sinfo -h -t idle -o %D 2> /dev/null | head -n 1) != "$1" ]] || return 0
    sleep 0.25
  done
  return 1
}

daemons() { # daemons DIR NODES: start them all
  slurmctld -f "$SLURM_CONF" && answers "$1" || return 1
  for ((node = 1; node <= $2; node++)); do slurmd -N "node$node" -f "$SLURM_CONF" || return 1; done
  idle "$2"
}

start() { # start DIR NODES LINES
  local dir nodes=$2 lines=$3 port
  for tool in slurmctld slurmd munged; do
    command -v "$tool" >/dev/null || die "$tool is missing; on Debian: apt-get install slurm-wlm munge"
  done
  mkdir -p "$1" && dir=$(CDPATH='' builtin cd "$1" && builtin pwd)
  case $dir in *[[:space:]]*) die "Slurm's own configuration takes no folder with a space: $dir" ;; esac
  mkdir -p "$dir"/{state,spool,log,dev}
  touch "$dir"/dev/gpu{0..3}
  start_munge "$dir"
  export SLURM_CONF=$dir/slurm.conf
  for ((attempt = 1; ; attempt++)); do
    port=$(free_ports $((nodes + 1)))
    write_config "$dir" "$nodes" "$port"
    [[ -z $lines ]] || override "$dir/slurm.conf" "$lines"
    if daemons "$dir" "$nodes" 2> "$dir/log/start"; then break; fi
    halt "$dir"/slurmd-*.pid "$dir/slurmctld.pid"
    # between the look for free ports and their use another program may have taken one
    if ((attempt == 5)) || ! grep -aqsi 'in use' "$dir"/log/slurm*.log "$dir/log/start"; then
      die "Slurm did not start: $(grep -aishE 'fatal|error' "$dir"/log/start "$dir"/log/slurm*.log | tail -n 5)"
    fi
    rm -rf "$dir"/log/slurm*.log "$dir"/state "$dir"/spool
    mkdir "$dir"/{state,spool}
  done
  echo "$SLURM_CONF"
}

ours() { # ours PIDFILE...: the processes that were started for this folder; the number of a dead one may be another program's by now
  local file pid
  for file in "$@"; do
    [[ -s $file ]] || continue
    pid=$(<"$file")
    if [[ $(tr '\0' ' ' 2> /dev/null < "/proc/$pid/cmdline") == *"${file%/*}"* ]]; then echo "$pid"; fi
  done 2> /dev/null
}

halt() { # halt PIDFILE...: end these processes
  local pid pids
  mapfile -t pids < <(ours "$@")
  for pid in "${pids[@]}"; do
    kill "$pid" 2> /dev/null || true
    kill -CONT "$pid" 2> /dev/null || true # a test that failed may have stopped it
  done
  for ((try = 0; try < 50; try++)); do
    kill -0 "${pids[@]}" 2> /dev/null || break # false once the last of them is gone
    sleep 0.1
  done
  for pid in "${pids[@]}"; do kill -9 "$pid" 2> /dev/null || true; done
}

stop() { # stop DIR
  local dir controller
  dir=$(CDPATH='' builtin cd "$1" && builtin pwd)
  export SLURM_CONF=$dir/slurm.conf
  controller=$(ours "$dir/slurmctld.pid")
  if [[ -n $controller ]]; then
    kill -CONT "$controller" 2> /dev/null || true
    timeout 20 scancel --user="$(id -un)" 2> /dev/null || true # running jobs would outlive their daemons
    for ((try = 0; try < 60; try++)); do
      [[ -n $(timeout 10 squeue --noheader 2> /dev/null) ]] || break
      sleep 0.25
    done
  fi
  halt "$dir"/slurmd-*.pid "$dir/slurmctld.pid" "$dir/munge/munged.pid"
}

case ${1:-} in
  start) start "${2:?folder}" "${3:-4}" "${4:-}" ;;
  stop) stop "${2:?folder}" ;;
  *) die "usage: cluster.sh start DIR [NODES [LINES]] | cluster.sh stop DIR" ;;
esac

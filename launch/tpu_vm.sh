#!/usr/bin/env bash
# A run on a TPU VM, a pod or several slices, from your own machine, through gcloud.
#
#   launch/tpu_vm.sh keep --name=electra --zone=us-west4-a --type=v5litepod-8 --spot \
#     -- --config=configs/base.py --workdir=gs://BUCKET/runs/base
#
# COMMAND is one of
#   create    makes the TPU VM, and waits until it is there
#   install   copies this checkout (or --wheel) to all workers and installs it
#   run       begins the run on all workers, in the background
#   status    the state of the TPU VM and of the run, and the last lines of its log
#   watch     the same every --every seconds until the run has ended, or the TPU VM is gone (code 2)
#   keep      all of it: creates, installs, runs, and after a preemption begins again, until the run
#             is done; may be stopped and called again at any time
#   stop      asks the run to save and end
#   delete    deletes the TPU VM
#
# Options come before the flags of electra_jax.main, which follow after `--`:
#   --name=NAME        of the TPU VM, and of the queued resource            (needed)
#   --zone=ZONE                                                             (needed)
#   --type=TYPE        such as v5litepod-8, v4-32, v5p-64, v6e-8            (create, keep)
#   --project=PROJECT  otherwise gcloud's
#   --version=VERSION  of the TPU software, otherwise the one for the type
#   --spot             cheaper, and preempted at any time
#   --queued           asks for a queued resource, which waits until there are chips
#   --slices=N         so many TPU VMs, NAME-0 to NAME-(N-1), in one queued resource; one run on all
#   --create=FLAG      one more flag for the creation, as --create=--network=mine; may be repeated
#   --wheel=FILE       installs this wheel instead of the checkout
#   --extras=NAMES     of the package, beside tpu and gcs, as --extras=wandb,s3  (install, keep)
#   --env=NAME=VALUE   sets a variable for the run on all workers; may be repeated  (run, keep)
#   --every=SECONDS    between two looks; 60
#   --lines=N          of the log at every look; 5
#   --tries=N          the run or the installation may fail so often before `keep` gives up; 5. An
#                      hour in which the run is seen running makes the count 0 again
#   --delete_when_done deletes the TPU VM when the run is done               (keep)
#   --dry-run          prints every command and runs none
#
# The disk of a preempted TPU VM is gone, so the workdir belongs in a bucket (--workdir=gs://...).
# On the workers the run is in ~/electra_jax_run: log.txt, and in `code` how it ended.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
stopped=75 # the exit code of a run that was asked to end, and has to continue
forgets=3600 # seconds that a run has to be seen running, for earlier errors no longer to count

# Messages and commands

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "error: $*"
  exit 2
}

# Prints words as a shell reads them, on one line unless they have several.
quoted() {
  local word space=''
  for word; do
    if [[ ! $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]]; then
      word="'${word//\'/$escaped}'"
    fi
    printf '%s%s' "$space" "$word"
    space=' '
  done
}
escaped="'\\''"

# Runs a command; with --dry-run prints it.
run() {
  if [[ $dry_run == yes ]]; then
    quoted "$@"
    echo
  else
    "$@"
  fi
}

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"; }

# Options

command=${1:-}
case $command in
create | install | run | status | watch | keep | stop | delete) shift ;;
-h | --help | help | '')
  usage
  exit 0
  ;;
*) fail "$command is no command of tpu_vm.sh; --help lists them" ;;
esac

name='' zone='' type='' project='' version='' wheel='' dry_run=no spot=no queued=no slices=1
delete_when_done=no every=60 lines=5 tries=5 extras=tpu,gcs
more=() variables=()
while (($#)); do
  case $1 in
  --name=*) name=${1#*=} ;;
  --zone=*) zone=${1#*=} ;;
  --type=*) type=${1#*=} ;;
  --project=*) project=${1#*=} ;;
  --version=*) version=${1#*=} ;;
  --wheel=*) wheel=${1#*=} ;;
  --extras=*) extras=tpu,gcs,${1#*=} ;;
  --env=*) variables+=("${1#*=}") ;;
  --create=*) more+=("${1#*=}") ;;
  --every=*) every=${1#*=} ;;
  --lines=*) lines=${1#*=} ;;
  --tries=*) tries=${1#*=} ;;
  --spot) spot=yes ;;
  --queued) queued=yes ;;
  --slices=*) slices=${1#*=} ;;
  --delete_when_done) delete_when_done=yes ;;
  --dry-run) dry_run=yes ;;
  --)
    shift
    break
    ;;
  *) fail "$1 is no option of tpu_vm.sh; flags of electra_jax.main follow after --" ;;
  esac
  shift
done
flags=("$@")

[[ $name ]] || fail "give --name=NAME, the name of the TPU VM"
[[ $zone ]] || fail "give --zone=ZONE"
[[ $every =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "--every=$every is no number of seconds"
[[ $lines =~ ^[0-9]+$ ]] || fail "--lines=$lines is no number"
[[ $slices =~ ^[1-9][0-9]*$ ]] || fail "--slices=$slices is no number from 1"
[[ $tries =~ ^[0-9]+$ ]] || fail "--tries=$tries is no number"
[[ -z $wheel || -f $wheel ]] || fail "--wheel=$wheel is no file"
[[ $extras =~ ^[a-z0-9_,]*[a-z0-9_]$ ]] ||
  fail "--extras=${extras#tpu,gcs,} is no list of extras, such as wandb,s3"
# An empty array would be an error in older shells.
for variable in ${variables[@]+"${variables[@]}"}; do
  [[ $variable =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || fail "--env=$variable is no NAME=VALUE"
done
case $command in
create | keep) [[ $type ]] || fail "give --type=TYPE, such as v5litepod-8 or v4-32" ;;
esac
case $command in
run | keep)
  ((${#flags[@]})) || fail "give the flags of electra_jax.main after --, at least --config=..."
  ;;
*) ((${#flags[@]} == 0)) || fail "$command takes no flags of electra_jax.main" ;;
esac

if [[ -z $version ]]; then
  case $type in
  v5litepod-*) version=v2-alpha-tpuv5-lite ;;
  v5p-*) version=v2-alpha-tpuv5 ;;
  v6e-*) version=v2-alpha-tpuv6e ;;
  v2-* | v3-* | v4-*) version=tpu-ubuntu2204-base ;;
  '') ;;
  *) fail "give --version=VERSION, the TPU software for --type=$type" ;;
  esac
fi

[[ $dry_run == yes ]] || command -v gcloud >/dev/null ||
  fail "there is no gcloud here; install it (https://cloud.google.com/sdk/docs/install)"

# The TPU VMs. Several slices are one queued resource: they come and go together, and the workers'
# metadata tell jax of all of them.
vms=("$name")
if ((slices > 1)); then
  queued=yes
  vms=()
  for ((slice = 0; slice < slices; slice++)); do vms+=("$name-$slice"); done
fi

where=(--zone="$zone" --quiet)
[[ -z $project ]] || where+=(--project="$project")
tpus=(gcloud compute tpus tpu-vm)
requests=(gcloud compute tpus queued-resources)

# The TPU VMs

create() {
  # An empty array would be an error in older shells.
  local asked=("${where[@]}" --accelerator-type="$type")
  [[ $spot == no ]] || asked+=(--spot)
  ((${#more[@]} == 0)) || asked+=("${more[@]}")

  if [[ $queued == yes ]]; then
    local nodes=(--node-id="$name")
    if ((slices > 1)); then nodes=(--node-count="$slices" --node-prefix="$name"); fi
    run "${requests[@]}" create "$name" "${nodes[@]}" --runtime-version="$version" "${asked[@]}"
  else
    run "${tpus[@]}" create "$name" --version="$version" "${asked[@]}"
  fi
}

delete() {
  if [[ $queued == yes ]]; then
    run "${requests[@]}" delete "$name" --force "${where[@]}"
  else
    run "${tpus[@]}" delete "$name" "${where[@]}"
  fi
}

# Prints the state of the TPU VM: what gcloud calls it, NONE if there is none, REFUSED if gcloud would
# never get an answer, UNREACHABLE if it got none now. That of a queued resource without its TPU VM
# begins with QUEUED_. Of several slices it is that of the first one that is not ready.
state_of_vm() {
  local found vm
  if [[ $queued == yes ]]; then
    found=$(described "${requests[@]}" describe "$name" --format='value(state.state)') || return
    if [[ $found != ACTIVE ]]; then
      case $found in NONE | REFUSED | UNREACHABLE) echo "$found" ;; *) echo "QUEUED_$found" ;; esac
      return
    fi
  fi
  for vm in "${vms[@]}"; do
    found=$(described "${tpus[@]}" describe "$vm" --format='value(state)')
    [[ $found == READY ]] || break
  done
  # A queued resource whose TPU VM somebody deleted makes no other one.
  [[ $queued != yes || $found != NONE ]] || found=QUEUED_WITHOUT_IT
  echo "$found"
}

described() {
  local found
  if found=$("$@" "${where[@]}" 2>&1); then
    printf '%s\n' "$found" | tail -n 1
  elif [[ $found == *NOT_FOUND* || $found == *"was not found"* ]]; then
    echo NONE
  else
    say "gcloud: $found"
    case $found in
    *"active account"* | *"auth login"* | *PERMISSION_DENIED*) echo REFUSED ;;
    # No project is configured, or there is no such zone.
    *"not properly specified"* | *"is not currently set"*) echo REFUSED ;;
    *"is not found or access is unauthorized"*) echo REFUSED ;;
    *) echo UNREACHABLE ;;
    esac
  fi
}

# The workers

# Does something with each TPU VM, with all at the same time; fails if it fails with one.
with_each_vm() {
  local vm running=() failed=0
  if [[ $dry_run == yes || $slices == 1 ]]; then
    for vm in "${vms[@]}"; do "$@" "$vm" || return; done
    return
  fi
  for vm in "${vms[@]}"; do
    "$@" "$vm" &
    running+=($!)
  done
  for vm in "${running[@]}"; do wait "$vm" || failed=1; done
  return "$failed"
}

# Runs a script on all workers.
on_workers() { with_each_vm on_workers_of all "$1"; }

# A worker that is gone is noticed within a minute, and not when its connection is given up.
patience=(-oConnectTimeout=15 -oServerAliveInterval=15)

# Runs a script on workers of one TPU VM: `all`, or a number.
on_workers_of() {
  run "${tpus[@]}" ssh "$3" --worker="$1" "${where[@]}" "${patience[@]/#/--ssh-flag=}" \
    --command="bash -c $(quoted "$2")"
}

# Copies a file into the homes of all workers.
to_workers() { with_each_vm to_workers_of "$1"; }

to_workers_of() {
  run "${tpus[@]}" scp "$1" "$2:${1##*/}" --worker=all "${where[@]}" "${patience[@]/#/--scp-flag=}"
}

# A Python that electra_jax runs on: one of the machine, or else one that uv brings.
# shellcheck disable=SC2016 # the worker expands it
environment='
set -e
mkdir -p ~/electra_jax_run
rm -f ~/electra_jax_run/installed
if [ ! -x ~/electra_jax_venv/bin/python ]; then
  rm -rf ~/electra_jax_venv
  for python in python3.13 python3.12 python3.11; do
    if "$python" -m venv ~/electra_jax_venv 2>/dev/null; then break; fi
    rm -rf ~/electra_jax_venv
  done
  if [ ! -x ~/electra_jax_venv/bin/python ]; then
    python3 -m pip install --quiet --user uv
    python3 -m uv venv --seed --python 3.12 ~/electra_jax_venv
  fi
fi'

# Of an earlier copy only its own files go: text and runs in that folder stay.
# shellcheck disable=SC2016 # the worker expands it
remove_checkout='if [ -e ~/electra_jax_run/files ]; then
  tr "\n" "\0" <~/electra_jax_run/files | xargs -0 rm -f --
fi'

install() {
  if [[ $wheel ]]; then
    local file=${wheel##*/}
    to_workers "$wheel"
    # A checkout that was installed before would be found first. pip takes a wheel of the version that
    # is there for the one that is there, so it is told to take this one.
    on_workers "$environment
mkdir -p ~/electra_jax
cd ~/electra_jax
$remove_checkout
rm -f ~/electra_jax_run/files
~/electra_jax_venv/bin/python -m pip install --quiet \"\$HOME/${file}[$extras]\"
~/electra_jax_venv/bin/python -m pip install --quiet --force-reinstall --no-deps \"\$HOME/${file}\"
touch ~/electra_jax_run/installed"
    return
  fi

  # Git stays here, so the worker's copy gets the commit as electra_jax/host/code_version.py reads it.
  local commit
  commit=$(git -C "$root" describe --always --exclude='*' --abbrev=12 --dirty=+dirty 2>/dev/null) || true

  local folder=/tmp
  if [[ $dry_run == yes ]]; then
    echo "git -C $(quoted "$root") ls-files -z --cached --others --exclude-standard" \
      "| tar -C $(quoted "$root") -czf $folder/electra_jax.tar.gz --null -T -"
  else
    folder=$(mktemp -d)
    pack "$folder/electra_jax.tar.gz"
  fi
  to_workers "$folder/electra_jax.tar.gz"
  if [[ $dry_run == no ]]; then rm -r "$folder"; fi
  # shellcheck disable=SC2016 # the worker expands it
  on_workers "$environment"'
mkdir -p ~/electra_jax
cd ~/electra_jax
'"$remove_checkout"'
tar -xzf ~/electra_jax.tar.gz
tar -tzf ~/electra_jax.tar.gz >~/electra_jax_run/files
'"echo $(quoted "$commit") >~/electra_jax/electra_jax/_commit"'
~/electra_jax_venv/bin/python -m pip install --quiet -e "$HOME/electra_jax['"$extras"']"
touch ~/electra_jax_run/installed'
}

# Writes this checkout as it stands, without what git ignores, to an archive.
pack() {
  git -C "$root" ls-files -z --cached --others --exclude-standard | (
    cd "$root"
    while IFS= read -r -d '' file; do
      if [[ -e $file ]]; then printf '%s\0' "$file"; fi
    done
  ) | tar -C "$root" -czf "$1" --null -T -
}

# Whether the run runs, or the shell that waits for it and then writes its exit code. The machine may
# have started anew, and given their numbers to other processes.
# shellcheck disable=SC2016 # the worker expands it
alive='alive() {
  for number in $(cat ~/electra_jax_run/waits ~/electra_jax_run/pid 2>/dev/null); do
    if tr "\0" " " 2>/dev/null <"/proc/$number/cmdline" | grep -q electra_jax; then return 0; fi
  done
  return 1
}'

# Begins the run on all workers where it does not run already. Its exit code is written when it ends.
begin() {
  local with=''
  ((${#variables[@]} == 0)) || with="env $(quoted "${variables[@]}") "
  # shellcheck disable=SC2016 # the worker expands it
  on_workers "$alive"'
cd ~/electra_jax || exit 1
if alive; then exit 0; fi
rm -f ../electra_jax_run/code ../electra_jax_run/pid
printf "%s\n" '"$(quoted "$(asked)")"' >../electra_jax_run/flags
'"$with"'nohup setsid bash -c '\''
  trap "" TERM
  echo $$ >../electra_jax_run/waits
  (trap - TERM; exec ../electra_jax_venv/bin/python -m electra_jax.main "$@") \
    >>../electra_jax_run/log.txt 2>&1 </dev/null &
  echo $! >../electra_jax_run/pid
  code=0
  wait $! || code=$?
  echo $code >../electra_jax_run/code'\'" bash $(quoted "${flags[@]}" --stopped_code="$stopped")"' \
  >/dev/null 2>&1 </dev/null &
for _ in 1 2 3 4 5 6 7 8 9 10; do
  if [ -s ../electra_jax_run/pid ]; then exit 0; fi
  sleep 0.2
done'
}

# The flags of this call as the workers keep them; nothing of a call without flags.
asked() { ((${#flags[@]} == 0)) || quoted "${flags[@]}"; }

# One line a worker: not installed, not begun, runs, ended CODE, or lost (killed without a code). A run
# that has ended and had other flags is not the one that is asked for, which is not begun.
ask() {
  printf 'asked=%s\n' "$(quoted "$(asked)")"
  # shellcheck disable=SC2016 # the worker expands it
  printf '%s\n' "$alive"'
cd ~/electra_jax_run 2>/dev/null || { echo "electra_jax: not installed"; exit 0; }
other() { [ -n "$asked" ] && [ -e flags ] && [ "$(cat flags)" != "$asked" ]; }
if [ ! -f installed ]; then echo "electra_jax: not installed"
elif alive; then echo "electra_jax: runs"
elif [ ! -s pid ] || other; then echo "electra_jax: not begun"
elif [ -s code ]; then echo "electra_jax: ended $(cat code)"
else echo "electra_jax: lost"
fi'
}

# Prints what the workers say, each different answer once, with commas; fails if one is not reached,
# with the words of who failed.
state_of_run() {
  local said why
  why=$(mktemp)
  if ! said=$(on_workers "$(ask)" 2>"$why"); then
    tail -n 3 "$why" >&2
    rm "$why"
    return 1
  fi
  rm "$why"
  said=$(printf '%s\n' "$said" | sed -n 's/^electra_jax: //p' | sort -u)
  [[ $said ]] || return 1
  printf '%s\n' "${said//$'\n'/, }"
}

show_log() {
  on_workers_of 0 "tail -n $lines ~/electra_jax_run/log.txt 2>/dev/null || true" "${vms[0]}" \
    2>/dev/null || true
}

stop() {
  # shellcheck disable=SC2016 # the worker expands it
  on_workers "$alive"'
if alive; then kill -TERM "$(cat ~/electra_jax_run/pid)" 2>/dev/null || true; fi'
}

# Watching

now() { date '+%Y-%m-%d %H:%M:%S'; }

look_at_vm() {
  vm=$(state_of_vm)
  say "$(now) $name: $vm"
  [[ $vm != REFUSED ]] || fail "gcloud may not look at $name, or does not know where (above)"
}

# Prints both states and the log; sets vm and going.
look() {
  look_at_vm
  going=''
  if [[ $vm == READY ]]; then
    going=$(state_of_run) || going=unreachable
    say "$(now) the run: $going"
    case $going in *runs* | *ended* | *lost*) show_log ;; esac
  fi
}

status() {
  if [[ $dry_run == no ]]; then
    look
    return
  fi
  # What `look` does, if the TPU VM is there.
  if [[ $queued == yes ]]; then
    run "${requests[@]}" describe "$name" --format='value(state.state)' "${where[@]}"
  fi
  for vm in "${vms[@]}"; do
    run "${tpus[@]}" describe "$vm" --format='value(state)' "${where[@]}"
  done
  on_workers "$(ask)"
  show_log
}

wait_until_ready() {
  while true; do
    look_at_vm
    case $vm in
    READY) return ;;
    QUEUED_FAILED | QUEUED_SUSPENDED | QUEUED_WITHOUT_IT | PREEMPTED | NONE)
      fail "$name did not come: it is $vm"
      ;;
    esac
    sleep "$every"
  done
}

watch() {
  while true; do
    look
    case $vm in
    READY) case $going in *runs* | unreachable) ;; *) return 0 ;; esac ;;
    NONE | STOPPED | TERMINATED | PREEMPTED | QUEUED_FAILED | QUEUED_SUSPENDED | QUEUED_WITHOUT_IT)
      fail "no run can be watched: $name is $vm"
      ;;
    *) ;; # on its way, or gcloud does not answer
    esac
    sleep "$every"
  done
}

# Creates what `keep` needs. Without chips in the zone it is tried again; other errors end it.
create_or_wait() {
  local said
  say "$(now) creating $name"
  if said=$(create 2>&1); then return; fi
  said=$(printf '%s\n' "$said" | tail -n 3)
  case $said in
  *capacity* | *RESOURCE_EXHAUSTED* | *UNAVAILABLE*) say "$said" ;;
  *ALREADY_EXISTS*) ;;
  *)
    say "$said"
    fail "gcloud did not create $name"
    ;;
  esac
}

# One look after another, and one action after each, so that it does not matter when it was stopped.
keep() {
  local errors=0 ran=0
  case " ${flags[*]} " in
  *" --workdir=gs://"* | *" --workdir gs://"*) ;;
  *) say "warning: the workdir is in no bucket; a run that is preempted loses it and begins anew" ;;
  esac
  trap 'say "stopped watching; the run continues, and the same command watches it again"; exit 130' INT

  while true; do
    look
    case $vm in
    NONE) create_or_wait ;;
    STOPPED) fail "$name was stopped by somebody: start or delete it" ;;
    PREEMPTED | TERMINATED | QUEUED_SUSPENDED | QUEUED_FAILED | QUEUED_WITHOUT_IT)
      say "$(now) $name was taken away ($vm): it is deleted and made again"
      if delete; then continue; fi
      ;;
    READY)
      case $going in
      'ended 0')
        say "$(now) done"
        if [[ $delete_when_done == yes ]]; then delete; fi
        return 0
        ;;
      'ended 2')
        fail "the run was refused (above); correct its flags and call the same command, or with" \
          "the same flags call run first"
        ;;
      unreachable) ;;
      *'not installed'*)
        if install; then continue; fi
        count_error "the installation failed"
        ;;
      'not begun, runs') begin || true ;;
      *runs*) # where one ended, the others end by themselves
        ran=$((ran + 1))
        # Errors that are hours apart are not those of a run that cannot continue.
        if awk "BEGIN { exit !($ran * $every >= $forgets) }"; then errors=0; fi
        ;;
      # 143: asked to end, had nothing to save. Where a machine was lost, the others end with errors.
      *"ended $stopped"* | *'ended 143'* | 'not begun' | *lost*)
        begin || true
        continue
        ;;
      *)
        count_error "the run ended with an error"
        begin || true
        continue
        ;;
      esac
      ;;
    *) ;; # on its way, or gcloud does not answer
    esac
    sleep "$every"
  done
}

count_error() {
  errors=$((errors + 1)) ran=0
  say "$(now) $1 ($errors of --tries=$tries)"
  if ((errors >= tries)); then fail "$1 $errors times (--tries=$tries): nothing is begun again"; fi
}

case $command in
create)
  create
  if [[ $dry_run == no ]]; then wait_until_ready; fi
  ;;
run) begin ;;
keep)
  if [[ $dry_run == yes ]]; then
    echo "# until the run is done: look,"
    status
    echo "# if there is no TPU VM,"
    create
    echo "# if nothing is installed,"
    install
    echo "# if the run is not begun, or was asked to end,"
    begin
    echo "# if the TPU VM was preempted, and at the end with --delete_when_done."
    delete
  else
    keep
  fi
  ;;
watch)
  if [[ $dry_run == yes ]]; then status; else watch; fi
  ;;
*) "$command" ;;
esac

# One job as SkyPilot's generated driver runs it (task executor specification, §4, §7, §9 to §12).
# From the environment: HERD, JOB (Slurm's), NUMBER (the driver's), NODES, NODE_LIST, CLUSTER_NODES, IPS, VARIABLES (JSON),
# SCRIPT or SCRIPT_PATH, SETUP. Its states go to ~/state-NUMBER.
state() { echo "$*" >> ~/state-"$NUMBER"; }
unset $(env | awk -F= '/^SLURM_/ && $1 !~ /^SLURM_CONF/ {print $1}')
alloc=$HOME/.sky_alloc_${JOB}_$NUMBER
setup_done=$HOME/.sky_setup_done_${JOB}_$NUMBER

cancel() {
	squeue -s -j "$JOB" -h -o '%i %j' | while read -r step name; do
		[ "$name" != "sky-$NUMBER" ] || scancel "$step"
	done
	kill $(jobs -p) 2>/dev/null
	wait
	state CANCELLED
	exit 143
}
trap cancel TERM

# step SUFFIX 'FLAGS OF SRUN' FLAG OF THE EXECUTOR…
step() {
	local suffix=$1 flags=$2
	shift 2
	local command
	command=$(printf '%q ' "$HERD" executor "--log-dir=~/sky_logs/$NUMBER" "--env-vars=$VARIABLES" "--cluster-num-nodes=$CLUSTER_NODES" \
		"--cluster-ips=$IPS" "--cluster-home-dir=$HOME" "$@")
	exec srun --export=ALL --quiet --unbuffered --kill-on-bad-exit --jobid="$JOB" --job-name="sky-$NUMBER$suffix" \
		--ntasks-per-node=1 $flags /bin/bash -c "$command"
}

if [ -n "$SCRIPT_PATH" ]; then script=--script-path=$SCRIPT_PATH; else script=--script=$SCRIPT; fi
state PENDING
step '' "--nodes=$NODES --cpus-per-task=1 --mem=0 --exclusive ${NODE_LIST:+--nodelist=$NODE_LIST}" \
	"$script" --alloc-signal-file="$alloc" --setup-done-signal-file="$setup_done" &
run=$!
while [ ! -e "$alloc" ]; do
	if ! kill -0 "$run" 2>/dev/null; then
		state FAILED_SETUP
		exit 1
	fi
	sleep 0.1
done
if [ -n "$SETUP" ]; then
	state SETTING_UP
	step -setup "--overlap --nodes=$CLUSTER_NODES" --script="$SETUP" --is-setup &
	if ! wait $!; then
		state FAILED_SETUP
		squeue -s -j "$JOB" -h -o '%i %j' | while read -r step name; do
			[ "$name" != "sky-$NUMBER" ] || scancel "$step"
		done
		exit 1
	fi
fi
state RUNNING
touch "$setup_done"
wait "$run"
code=$?
if [ "$code" = 0 ]; then
	rm -f "$alloc" "$setup_done"
	state SUCCEEDED
else
	state FAILED "$code"
	exit 1
fi

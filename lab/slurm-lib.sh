# The machines of a Slurm lab, and what its scripts share: packages, the lock, waiting. Sourced after lib.sh, never run.
# A machine is a process in namespaces of its own (lab/slurm-machine); file machines/NAME holds its number and start time.
# `ctl` runs munge, slurmdbd and slurmctld; `database` MariaDB; `login` is for ssh; `nodeN` runs slurmd; `clients` runs nothing:
# its network namespace is the switch all the others hang on, its mounts are the tree in which this machine's clients run.

packages=(slurmctld slurmd slurm-client slurmdbd slurm-wlm-basic-plugins slurm-wlm-mysql-plugin munge mariadb-server-core
	mariadb-client-core openssh-server openssh-client tcsh iproute2 util-linux procps)
namespaces=(--net --uts --mount --ipc --pid)
clean_environment=(env -i "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" LANG=C.UTF-8)

# Debian would start each daemon on this machine as well; policy-rc.d is its way to say no.
install_packages() {
	local policy=/usr/sbin/policy-rc.d
	[[ -n $(missing_packages "${packages[@]}") ]] || return 0
	(
		if ((EUID == 0)) && [[ ! -e $policy ]]; then
			trap 'rm -f "$policy"' EXIT
			printf '#!/bin/sh\nexit 101\n' >"$policy"
			chmod 755 "$policy"
		fi
		apt_install "${packages[@]}"
	)
}

load_settings() { [[ ! -e $directory/settings ]] || . "$directory/settings"; }

# One command at a time changes a lab. The lock is the directory itself, which the last `down` removes: so look again.
lock_lab() {
	local fd
	while :; do
		mkdir -p "$directory"
		exec {fd}<"$directory" || continue
		flock --wait 120 "$fd" || die "another command holds the lab in $directory for 120 s"
		[[ ! $directory -ef /proc/self/fd/$fd ]] || break
		exec {fd}<&-
	done
}

# wait_for SECONDS WHAT LOG COMMAND…; the command itself must be bounded
wait_for() {
	local limit=$1 what=$2 log=$3 end=$((SECONDS + $1))
	shift 3
	until "$@" >/dev/null 2>&1; do
		if ((SECONDS >= end)); then
			tail -n 5 "$log" >&2 || true
			die "waited $limit s for $what; see $log"
		fi
		sleep 0.05
	done
}

# running PID START: whether that very process is there, zombies aside.
running() {
	local stat
	read -ra stat 2>/dev/null <"/proc/$1/stat" || return 1
	[[ ${stat[21]:-} == "$2" && ${stat[2]} != Z ]]
}

# The process number of a machine that runs.
machine_pid() {
	local pid start
	read -r pid start 2>/dev/null <"$directory/machines/$1" || return 1
	running "$pid" "$start" || return 1
	printf '%s\n' "$pid"
}

# enter MACHINE COMMAND…; clients_net: only the switch; clients_files: only the tree
enter() {
	local machine=$1 pid
	shift
	case $machine in
	clients_net) pid=$(machine_pid clients) && nsenter --target "$pid" --net -- "$@" ;;
	clients_files) pid=$(machine_pid clients) && nsenter --target "$pid" --mount --wdns=/ -- "$@" ;;
	*) pid=$(machine_pid "$machine") && nsenter --target "$pid" "${namespaces[@]}" --wdns=/ -- "$@" ;;
	esac
}

# A client of Slurm, of the lab's version, on this machine.
in_clients() { enter clients_files "${clean_environment[@]}" SLURM_CONF="$directory/etc/slurm.conf" timeout 20 "$@"; }

# Locks and pipes of the caller must not stay open in what outlives this command. 255 is bash's own for its script.
close_descriptors() {
	local descriptor
	for descriptor in /proc/self/fd/*; do
		descriptor=${descriptor##*/}
		((descriptor <= 2 || descriptor == 255)) || eval "exec $descriptor>&-"
	done
}

start_machines() {
	local name log
	for name; do
		rm -f "$directory/machines/$name"
		log=$directory/log/machine-$name
		(
			close_descriptors
			exec </dev/null >>"$log" 2>&1
			exec setsid --fork unshare --net --uts --mount --propagation slave --ipc --pid --kill-child --fork -- \
				"${clean_environment[@]}" "$lab/slurm-machine" "$directory" "$name"
		)
	done
	for name; do
		wait_for 30 "machine $name" "$directory/log/machine-$name" test -e "$directory/machines/$name"
	done
}

# Every process of this lab that is not inside a machine: those that hold the machines.
holders() {
	local file arguments
	for file in /proc/[0-9]*/cmdline; do
		mapfile -d '' -t arguments 2>/dev/null <"$file" || continue
		[[ " ${arguments[*]} " == *"/slurm-machine $directory "* ]] || continue
		file=${file%/cmdline}
		[[ $(sed 's/.*) //' "$file/stat" 2>/dev/null) != [ZX]* ]] || continue
		printf '%s\n' "${file##*/}"
	done
}

# stop_machines NAME…: the kernel ends all that runs in them.
stop_machines() {
	local name pid start try
	for name; do
		pid=$(machine_pid "$name") && kill -KILL "$pid" 2>/dev/null || true
	done
	for name; do
		read -r pid start 2>/dev/null <"$directory/machines/$name" || continue
		for try in {1..200}; do
			running "$pid" "$start" || continue 2
			sleep 0.05
		done
		die "machine $name (process $pid) did not end within 10 s after SIGKILL; see $directory/log"
	done
}

# connect NAME…: a cable from the machine to the switch.
connect() {
	local name address switch pid
	switch=$(machine_pid clients)
	for name; do
		case $name in
		database) continue ;;
		ctl) address=$subnet.2 ;;
		login) address=$subnet.3 ;;
		node*) address=$subnet.$((10 + ${name#node})) ;;
		esac
		pid=$(machine_pid "$name")
		nsenter --target "$switch" --net -- ip -batch - <<-IP
			link add $name type veth peer name eth0 netns $pid
			link set $name master switch up
		IP
		nsenter --target "$pid" --net -- ip -batch - <<-IP
			address add $address/24 dev eth0
			link set lo up
			link set eth0 up
		IP
	done
}

remove_port() { enter clients_net ip link delete "$1" 2>/dev/null || true; }

# What runs on the nodes and is neither the machine's own nor slurmd or slurmstepd.
processes() {
	local n
	for ((n = 1; n <= nodes; n++)); do
		enter "node$n" ps -eo pid=,stat=,comm=,args= | awk -v node="node$n" '
			$1 != 1 && $2 !~ /^Z/ && $3 !~ /^(slurmd|slurmstepd|ps)$/ && !($3 == "sleep" && $5 == "infinity") {
				line = node " " $1
				for (i = 4; i <= NF; i++) line = line " " $i
				print line
			}'
	done
}

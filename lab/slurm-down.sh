# Taking a Slurm lab down, and finding what is left of one. Sourced after slurm-lib.sh, never run.

# What is left of this lab although nothing should be; false when nothing is.
leftovers() {
	local found=1 line
	while read -r line; do found=0 && printf 'process left: %s\n' "$line"; done < <(holders)
	while read -r line; do found=0 && printf 'network interface left: %s\n' "$line"; done < <(interfaces)
	while read -r line; do found=0 && printf 'cgroup left: %s\n' "$line"; done < <(cgroups)
	while read -r line; do found=0 && printf 'mount left: %s\n' "$line"; done < <(awk -v d="$directory" '$2 == d || index($2, d "/") == 1 {print $2}' /proc/mounts)
	return "$found"
}

# The lab's interface on this machine carries its directory as an alias.
interfaces() {
	local alias
	for alias in /sys/class/net/herdslab*/ifalias; do
		[[ -e $alias && $(<"$alias") == "$directory" ]] || continue
		alias=${alias%/ifalias}
		printf '%s\n' "${alias##*/}"
	done
}

cgroups() {
	[[ -n ${interface:-} ]] || return 0
	compgen -G "/sys/fs/cgroup/*/slurm_node*/$interface" || true
}

remove_cgroups() {
	local group try
	while read -r group; do
		for try in {1..100}; do
			find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
			[[ -d $group ]] || break
			sleep 0.05
		done
		# Another lab may be using it.
		[[ $group != */slurm_node*/* ]] || rmdir "${group%/*}" 2>/dev/null || true
	done < <(cgroups)
}

# Everything that up made, whatever state it is in.
take_down() {
	local file pid names=() link end=$((SECONDS + 20))
	rm -f "$directory/up"
	[[ ! -e $directory/ssh/config ]] || timeout 5 ssh -F "$directory/ssh/config" -O exit login 2>/dev/null || true
	# A frozen process does not even die of SIGKILL.
	while read -r file; do
		find "$file" -name freezer.state -exec sh -c 'echo THAWED >"$1"' sh {} \; 2>/dev/null || true
	done < <(cgroups)
	for file in "$directory"/machines/*; do [[ ! -e $file ]] || names+=("${file##*/}"); done
	((!${#names[@]})) || stop_machines "${names[@]}"
	while pid=$(holders) && [[ -n $pid ]]; do
		((SECONDS < end)) || die "processes do not end: $(paste -sd' ' <<<"$pid")"
		xargs --no-run-if-empty kill -KILL 2>/dev/null <<<"$pid" || true
		sleep 0.02
	done
	for link in $(interfaces); do ip link delete "$link" 2>/dev/null || true; done
	remove_cgroups
	! leftovers >&2 || die "could not take down all of $directory"
	# Only what up makes, should somebody have chosen a directory that holds more.
	(cd "$directory" && rm -rf --one-file-system bin chosen db etc gpu home log machines run settings spool ssh state tmp)
}

# Writes the configuration of a Slurm lab into $directory/etc. Sourced by lab/slurm-up, never run.

# write_slurm_conf VERSION: slurm.conf, gres.conf and cgroup.conf for the settings in force.
write_slurm_conf() {
	local version=$1 etc=$directory/etc lines=() line key given= node n gres=
	local preemption=(PreemptType=preempt/none)
	if ((accounting)); then
		preemption=(PreemptType=preempt/qos PreemptMode=REQUEUE)
		# From 23.02 on the setting has another home.
		case $version in
		2[0-2].*) preemption+=(SlurmctldParameters=preempt_send_user_signal) ;;
		*) preemption+=(PreemptParameters=send_user_signal) ;;
		esac
	fi
	lines=(
		ClusterName=lab
		"SlurmctldHost=ctl($subnet.2)"
		SlurmUser=root
		AuthType=auth/munge
		CredType=cred/munge
		# A requeued job starts again only when its credential has expired: 120 s by default.
		"AuthInfo=cred_expire=5,socket=$directory/run/munge.socket"
		"ProctrackType=proctrack/$proctrack"
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/none
		SelectType=select/cons_tres
		SelectTypeParameters=CR_CPU_Memory
		# Nodes may claim more processors than this machine has.
		SlurmdParameters=config_overrides
		ReturnToService=2
		MpiDefault=none
		"${preemption[@]}"
		# A job starts within 0.2 s instead of 3.
		SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
		KillWait=10
		SlurmdTimeout=60
		MaxArraySize=20001
		MaxJobCount=20000
		"StateSaveLocation=$directory/state"
		"SlurmdSpoolDir=$directory/spool/%n"
		# With one /tmp for all nodes, steps with --mpi=pmix would meet in it.
		"TmpFS=$directory/tmp/%n"
		"SlurmctldPidFile=$directory/run/slurmctld.pid"
		"SlurmdPidFile=$directory/run/slurmd-%n.pid"
		"SlurmctldLogFile=$directory/log/slurmctld.log"
		"SlurmdLogFile=$directory/log/slurmd-%n.log"
		SlurmdDebug=debug
	)
	((!accounting)) || lines+=(
		AccountingStorageType=accounting_storage/slurmdbd
		"AccountingStorageHost=$subnet.2"
		"AccountingStoragePass=$directory/run/munge.socket"
		AccountingStorageEnforce=associations,limits,qos
	)
	if ((gpus)); then
		gres=" Gres=gpu${gpu_type:+:$gpu_type}:$gpus"
		lines+=(GresTypes=gpu)
		((!accounting)) || lines+=(AccountingStorageTRES=gres/gpu)
		# A count alone is taken for no GPU at all: there have to be device files, here of a number that no driver has.
		printf 'Name=gpu %sFile=%s\n' "${gpu_type:+Type=$gpu_type }" "$directory/gpu/[0-$((gpus - 1))]" >"$etc/gres.conf"
		for ((n = 0; n < gpus; n++)); do mknod "$directory/gpu/$n" c 60 "$n"; done
	fi
	# Slurm refuses a key given twice, so lines of the caller take the place of those above.
	for line in "${conf[@]}"; do given+=" ${line%%=*} "; done
	for line in "${lines[@]}"; do
		key=${line%%=*}
		[[ ${given,,} == *" ${key,,} "* ]] || printf '%s\n' "$line"
	done >"$etc/slurm.conf"
	((!${#conf[@]})) || printf '%s\n' "${conf[@]}" >>"$etc/slurm.conf"
	for ((n = 1; n <= nodes; n++)); do
		node=node$n
		mkdir -p "$directory/spool/$node" "$directory/tmp/$node"
		chmod 1777 "$directory/tmp/$node"
		printf 'NodeName=%s NodeAddr=%s CPUs=%s RealMemory=%s%s\n' "$node" "$subnet.$((10 + n))" "$cpus" "$memory" "$gres"
	done >>"$etc/slurm.conf"
	printf 'PartitionName=all Nodes=node[1-%s] Default=YES MaxTime=INFINITE State=UP\n' "$nodes" >>"$etc/slurm.conf"
	[[ -z $containers ]] || write_containers "$version"
	printf 'CgroupPlugin=cgroup/v1\n' >"$etc/cgroup.conf"
	((!${#cgroup_conf[@]})) || printf '%s\n' "${cgroup_conf[@]}" >>"$etc/cgroup.conf"
}

# write_containers VERSION: the tree that containers see, and what starts them.
write_containers() {
	# Slurm 22.05 takes a bundle's tree from there, whatever its configuration says.
	local image=$directory/bundle/rootfs etc=$directory/etc numbers link runtime=$directory/etc/runtime pattern=%n.%u.%j.%s.%t
	mkdir -p "$image"/{etc,tmp,usr,proc,dev,sys,root}
	printf 'lab\n' >"$image/etc/image"
	cp /etc/passwd /etc/group "$image/etc"
	for link in bin sbin lib lib64; do
		[[ ! -L /$link ]] || ln -sfn "$(readlink "/$link")" "$image/$link"
	done
	case $containers in
	pyxis)
		IFS=. read -ra numbers <<<"$1"
		cc -shared -fPIC -O1 "-DSLURM_VERSION=$(((numbers[0] << 16) + (10#${numbers[1]} << 8) + 10#${numbers[2]}))" \
			-o "$etc/pyxis.so" "$lab/slurm-pyxis.c"
		printf 'required %s %s\n' "$etc/pyxis.so" "$image" >"$etc/plugstack.conf"
		;;
	oci)
		cp "$lab/slurm-runtime" "$runtime"
		cat >"$directory/bundle/config.json" <<-JSON
			{"ociVersion": "1.0.0", "root": {"path": "rootfs"}, "process": {"cwd": "/", "args": ["sh"], "env": []},
			 "mounts": [{"destination": "/usr", "source": "/usr", "type": "none", "options": ["rbind"]},
			  {"destination": "/proc", "source": "/proc", "type": "none", "options": ["rbind"]},
			  {"destination": "/dev", "source": "/dev", "type": "none", "options": ["rbind"]}]}
		JSON
		cat >"$etc/oci.conf" <<-CONF
			RunTimeQuery="$runtime query $pattern"
			RunTimeRun="$runtime run $pattern %b"
			RunTimeKill="$runtime kill $pattern"
			RunTimeDelete="$runtime delete $pattern"
		CONF
		;;
	esac
}

write_slurmdbd_conf() {
	(
		umask 077
		cat >"$directory/etc/slurmdbd.conf" <<-CONF
			AuthType=auth/munge
			AuthInfo=socket=$directory/run/munge.socket
			DbdHost=ctl
			SlurmUser=root
			StorageType=accounting_storage/mysql
			StorageHost=localhost
			StorageUser=root
			StorageLoc=slurm
			PidFile=$directory/run/slurmdbd.pid
			LogFile=$directory/log/slurmdbd.log
		CONF
	)
}

write_hosts() {
	local n
	{
		printf '127.0.0.1 localhost\n%s host\n%s ctl\n%s login\n' "$subnet.1" "$subnet.2" "$subnet.3"
		for ((n = 1; n <= nodes; n++)); do printf '%s node%s\n' "$subnet.$((10 + n))" "$n"; done
	} >"$directory/etc/hosts"
}

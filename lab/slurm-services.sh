# The daemons in the machines of a Slurm lab. Sourced after slurm-lib.sh, never run.

# start_daemon NAME MACHINE: in the machine, with a clean environment, its output in log/NAME-MACHINE.out
start_daemon() {
	local daemon=$1 machine=$2 command=("${@:3}")
	case $daemon in
	slurmd) command=(slurmd -D -N "$machine") ;;
	slurmctld | slurmdbd) command=("$daemon" -D) ;;
	esac
	! daemon_pid "$daemon" "$machine" >/dev/null || return 0
	# Forked, so that the machine's first process adopts it.
	(
		close_descriptors
		exec </dev/null >>"$directory/log/$daemon-$machine.out" 2>&1
		enter "$machine" "${clean_environment[@]}" SLURM_CONF="$directory/etc/slurm.conf" setsid --fork "${command[@]}"
	) || die "cannot start $daemon on $machine; see $directory/log/$daemon-$machine.out"
}

# The number inside the machine of a daemon that runs there.
daemon_pid() { enter "$2" pgrep --exact --oldest --parent 1 "$1"; }

# stop_daemon NAME MACHINE SIGNAL
stop_daemon() {
	local pid
	pid=$(daemon_pid "$1" "$2") || return 0
	enter "$2" kill "-$3" "$pid"
	wait_for 30 "the end of $1 on $2" "$directory/log/$1-$2.out" daemon_gone "$1" "$2"
}

daemon_gone() { ! daemon_pid "$1" "$2"; }

# MariaDB, always of this machine's Debian: slurmdbd 24.11.5 of Debian 13 does not get along with the one beside it (11.8.9,
# "Number of columns in result set exceeds").
start_database() {
	local log=$directory/log/mariadbd-database.out template
	# Nothing here has to survive the machine, so nothing waits for the disk.
	local unsafe=(--debug-no-sync --sync-frm=0 --innodb-flush-method=nosync --innodb-flush-log-at-trx-commit=0)
	if [[ ! -d $directory/db/mysql ]]; then
		template=$(database_template)
		if [[ -d $template ]]; then
			cp -a --sparse=always "$template/." "$directory/db"
		else
			enter database "${clean_environment[@]}" mariadb-install-db --no-defaults --user=root --datadir="$directory/db" \
				--auth-root-authentication-method=normal --skip-test-db "${unsafe[@]}" >"$directory/log/database-install.log" 2>&1 ||
				die "cannot make the database; see $directory/log/database-install.log"
		fi
	fi
	start_daemon mariadbd database mariadbd --no-defaults --user=root --datadir="$directory/db" --socket="$directory/run/mariadb.sock" \
		--skip-networking --skip-log-bin --innodb-buffer-pool-size=32M --innodb-log-file-size=16M "${unsafe[@]}"
	wait_for 60 mariadbd "$log" enter database timeout 5 mariadb --no-defaults --user=root --socket="$directory/run/mariadb.sock" --execute="select 1"
}

# The database as it is after add_accounts, for these versions of everything that goes into it. Making it takes longer
# than all the rest of coming up.
database_template() {
	local versions
	versions=$({
		in_clients slurmctld -V
		enter database mariadbd --no-defaults --version 2>/dev/null
		declare -f add_accounts
	} | sha256sum)
	printf '%s/slurm-database-%s\n' "$cache" "${versions:0:16}"
}

start_slurmdbd() {
	start_daemon slurmdbd ctl
	wait_for 60 slurmdbd "$directory/log/slurmdbd.log" in_clients sacctmgr --noheader list cluster
}

# The accounts of a new database; what it is then becomes the template, which is copied when nobody writes to it.
prepare_database() {
	local template
	template=$(database_template)
	if [[ ! -d $template ]]; then
		say "makes the accounting database, once"
		add_accounts
		stop_daemon slurmdbd ctl TERM
		stop_daemon mariadbd database TERM
		rm -rf "$template.$interface"
		cp -a --sparse=always "$directory/db" "$template.$interface"
		mv -T "$template.$interface" "$template" 2>/dev/null || rm -rf "$template.$interface"
		start_database
		start_slurmdbd
	fi
	touch "$directory/state/accounts"
}

# sacctmgr remembers the QOS it has seen once, so both are made before one names the other. Account lab for root and nobody; high preempts low, whose jobs are requeued 15 s after they were told.
add_accounts() {
	in_clients sacctmgr --immediate >"$directory/log/accounts.log" 2>&1 <<-COMMANDS || die "cannot add accounts; see $directory/log/accounts.log"
		add cluster lab
		add account lab
		add qos low,high
		modify qos low set gracetime=15 preemptmode=requeue
		modify qos high set preempt=low
		add user root,nobody account=lab
		modify user root,nobody set defaultaccount=lab
		modify user root,nobody set qos=normal,low,high
	COMMANDS
}

start_munged() {
	start_daemon munged ctl munged --foreground --force --num-threads 4 --key-file "$directory/etc/munge.key" \
		--socket "$directory/run/munge.socket" --pid-file "$directory/run/munged.pid" \
		--log-file "$directory/log/munged.log" --seed-file "$directory/run/munge.seed"
	wait_for 20 munged "$directory/log/munged-ctl.out" enter ctl timeout 5 munge --no-input --socket "$directory/run/munge.socket"
}

# All of ctl; the database and the state of slurmctld are kept in the lab's directory.
start_controller() {
	start_munged
	if ((accounting)); then
		start_database
		start_slurmdbd
		[[ -e $directory/state/accounts ]] || prepare_database
	fi
	start_daemon slurmctld ctl
	wait_for 60 slurmctld "$directory/log/slurmctld.log" in_clients scontrol ping
}

start_sshd() {
	local ssh=$directory/ssh key
	for key in host user; do
		[[ -e $ssh/$key ]] || ssh-keygen -q -t ed25519 -N '' -C "$key of the Slurm lab" -f "$ssh/$key"
	done
	cp "$ssh/user.pub" "$ssh/authorized"
	printf 'login %s\n' "$(<"$ssh/host.pub")" >"$ssh/known"
	cat >"$ssh/sshd_config" <<-CONF
		ListenAddress $subnet.3:22
		HostKey $ssh/host
		AuthorizedKeysFile $ssh/authorized
		PasswordAuthentication no
		KbdInteractiveAuthentication no
		PermitRootLogin prohibit-password
		UsePAM no
		StrictModes no
		PidFile none
		PrintMotd no
		SetEnv SLURM_CONF=$directory/etc/slurm.conf
	CONF
	cat >"$ssh/config" <<-CONF
		Host login
		  HostName $subnet.3
		  User root
		  IdentityFile $ssh/user
		  IdentitiesOnly yes
		  HostKeyAlias login
		  UserKnownHostsFile $ssh/known
		  StrictHostKeyChecking yes
		  BatchMode yes
		  ConnectTimeout 10
		  ControlMaster auto
		  ControlPath $ssh/master
		  ControlPersist 60
	CONF
	start_daemon sshd login /usr/sbin/sshd -D -e -f "$ssh/sshd_config"
	wait_for 20 sshd "$directory/log/sshd-login.out" timeout 5 bash -c "exec 3<>/dev/tcp/$subnet.3/22"
}

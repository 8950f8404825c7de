# Shared by the scripts here and in scripts/: the cache, locks, messages, Debian packages. Sourced by bash, never run.
set -euo pipefail

lab=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${HERD_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or HERD_CACHE}/.cache}/herdsman}
cache=$(realpath --canonicalize-missing "$cache")
mkdir -p "$cache"
me=$(basename "$(dirname "$(realpath "$0")")")/$(basename "$0")

say() { printf '%s: %s\n' "$me" "$*" >&2; }

die() {
	say "$*"
	exit 1
}

# One run at a time for each NAME; the kernel drops the lock with the process. `lock NAME [DIRECTORY]`
lock() {
	local directory=${2:-$cache} fd
	mkdir -p "$directory"
	exec {fd}>"$directory/$1.lock"
	flock --nonblock "$fd" || {
		say "waits for another run of $1"
		flock "$fd"
	}
}

# Those of the given Debian packages that are not installed, one a line.
missing_packages() {
	local package installed
	installed=$(dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null) || true
	for package; do
		[[ $'\n'$installed$'\n' == *$'\n'"$package installed"$'\n'* ]] || printf '%s\n' "$package"
	done
}

# Install those of the given Debian packages that are missing. The package lists are fetched only when they do not
# know a package, or when they name a version that is gone.
apt_install() {
	local wanted
	mapfile -t wanted < <(missing_packages "$@")
	((${#wanted[@]})) || return 0
	command -v apt-get >/dev/null || die "needs the equivalents of these Debian packages: ${wanted[*]}"
	((EUID == 0)) || die "needs root for: apt-get install --no-install-recommends ${wanted[*]}"
	# A subshell, so that the lock is given back as soon as apt-get is done.
	(
		lock herdsman-apt /run/lock
		mapfile -t wanted < <(missing_packages "$@")
		((${#wanted[@]})) || exit 0
		log=$cache/apt.log
		say "installs ${wanted[*]} (output in $log)"
		{ apt-cache show --no-all-versions "${wanted[@]}" && apt_get install "${wanted[@]}"; } >"$log" 2>&1 && exit 0
		say "fetches the package lists"
		{ apt_get update && apt_get install "${wanted[@]}"; } >"$log" 2>&1 && exit 0
		tail -n 20 "$log" >&2
		die "apt-get failed"
	) || exit 1
}

# apt-get without questions, and patient with another one that runs.
apt_get() {
	local verb=$1 options=()
	shift
	[[ $verb != install ]] || options=(--yes --no-install-recommends)
	DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$verb" "${options[@]}" "$@"
}

# A Python that can make environments: HERD_LAB_PYTHON, else the first on PATH, else Debian's with python3-venv.
base_python() {
	local candidate
	for candidate in ${HERD_LAB_PYTHON:+"$HERD_LAB_PYTHON"} $(type -ap python3); do
		if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
			printf '%s\n' "$candidate"
			return
		fi
	done
	apt_install python3-venv
	printf '/usr/bin/python3\n'
}

# Whether the environment at $1 was finished and its interpreter still starts.
venv_ready() { [[ -e $1/complete ]] && "$1/bin/python" -S -c '' 2>/dev/null; }

# pip_install VENV PACKAGE…, by another environment's pip where `installer` names one.
pip_install() {
	local venv=$1
	shift
	"${installer:-$venv}/bin/python" -m pip --python "$venv/bin/python" install --quiet --no-cache-dir --no-warn-conflicts --disable-pip-version-check --root-user-action=ignore "$@"
}

# The environment that the link $cache/$1 names: `use NAME VENV` sets it, atomically.
use() {
	ln -sfn "$2" "$cache/$1.new" && mv -T "$cache/$1.new" "$cache/$1"
}

# Functions that the scripts share. Sourced, not run.

# Numbers of tests that ran, and the reasons why others did not.
passed=0
failed=0
skipped=()

# Returns whether every test must run: in CI no test may be skipped that the machine could run.
in_ci() { [[ ${CI:-} == true || ${CI:-} == 1 ]]; }

# Reports conspicuously that a test did not run. In CI that is a failure, except on a machine that
# allows no mounts.
skip() { # REASON
    echo "######## SKIPPED: $1"
    skipped+=("$1")
    if in_ci && can_mount; then
        echo "FAILED: nothing may be skipped in CI"
        failed=$((failed + 1))
    fi
}

# Returns whether file systems can be mounted here: by root through /dev/fuse.
can_mount() { [[ $(id -u) == 0 && -c /dev/fuse ]]; }

# Counts a test by the outcome of its command, and what it has skipped.
try() { # NAME COMMAND...
    local name=$1 log line
    shift
    if log=$("$@" 2>&1); then
        passed=$((passed + 1))
        echo "ok $name"
        while IFS= read -r line; do
            skip "${line##*SKIPPED: }"
        done < <(grep -a '^######## SKIPPED: ' <<<"$log")
    else
        failed=$((failed + 1))
        echo "not ok $name"
        printf '%s\n' "$log" | tail -n 60 | sed 's/^/    /'
    fi
}

# Prints the closing line; returns false if a test failed.
closing_line() {
    local line="$passed passed, $failed failed"
    ((${#skipped[@]} == 0)) || line+=", ${#skipped[@]} skipped"
    echo "$line"
    ((failed == 0 && passed > 0))
}

# Ends a script that can run no more tests here.
end() { # REASON
    skip "$1"
    closing_line || true
    exit 0
}

# Makes a file system in a new image of a size, and mounts it through a loop device, whose name is
# added to `devices`.
devices=()
mount_loop() { # TYPE IMAGE SIZE DIR
    local device
    truncate --size "$3" "$2"
    # No mkfs needs to discard unused blocks: the image is already sparse.
    case $1 in
        ext4) mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$2" ;;
        xfs) mkfs.xfs -q -f "$2" ;;
        btrfs) mkfs.btrfs -q -f "$2" >/dev/null ;;
    esac
    # Direct I/O prevents caching the data twice; not every underlying file system supports it.
    device=$(losetup --find --show --direct-io=on "$2" 2>/dev/null || losetup --find --show "$2")
    devices+=("$device")
    mount -t "$1" "$device" "$4"
}

# Installs the Debian packages of missing programs. Returns false if that is not possible.
need() { # PROGRAM=PACKAGE...
    local missing=() pair
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    ((${#missing[@]} == 0)) || install_packages "${missing[@]}"
}

# Parts that run beside each other install one after the other: apt-get does not wait for itself.
install_packages() { # PACKAGE...
    echo "installing: $*"
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        return 1
    fi
    local lock
    exec {lock}>>/run/lock/vfscale-packages
    flock "$lock"
    local status=0
    apt_install "$@" || status=$?
    exec {lock}>&-
    return "$status"
}

apt_install() { # PACKAGE...
    # Once for each run of a script.
    if [[ -z ${PACKAGES_UPDATED:-} ]]; then
        timeout 300 apt-get update -qq || return 1
        export PACKAGES_UPDATED=1
    fi
    DEBIAN_FRONTEND=noninteractive timeout 600 \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Sets `program` to the one that VFSCALE names, or else to the one of a release, which is built.
find_program() {
    program=${VFSCALE:-}
    if [[ -z $program ]]; then
        (cd "$here/.." && cargo build --release --quiet -p vfscale-cli)
        program=${CARGO_TARGET_DIR:-$here/../target}/release/vfscale
    fi
    program=$(realpath "$program")
}

# Prints the head of a file for docs/results, but for the end of its last line.
report_head() { # TITLE COMMAND
    local cpu
    cpu=$(sed -n '/^model name/ { s/^[^:]*: //p; q }' /proc/cpuinfo)
    # shellcheck disable=SC2016 # the quotes are those of Markdown
    printf '# %s\n\n```sh\n%s\n```\n\n' "$1" "$2"
    printf '%s UTC, commit `%s`, %s CPUs of %s, Linux %s. ' "$(date -u '+%F %R')" \
        "$(git -C "$here" rev-parse --short=12 HEAD)" "$(nproc)" "$cpu" "$(uname -r)"
}

# Prints a sum of what the laboratory measures and measures by. Fails if that is not what git has in
# its index.
lab_sources() {
    local files=(crates/sync crates/vfs crates/journal lab ':!lab/passed')
    git diff --quiet -- "${files[@]}" && git ls-files --stage -- "${files[@]}" | sha256sum
}

# Returns whether the laboratory has not passed with these files.
lab_changed() {
    [[ $(lab_sources) != "$(cat lab/passed 2>/dev/null || echo never)" ]]
}

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

# Prints the closing line; returns false if a test failed.
closing_line() {
    local line="$passed passed, $failed failed"
    ((${#skipped[@]} == 0)) || line+=", ${#skipped[@]} skipped"
    echo "$line"
    ((failed == 0 && passed > 0))
}

# Installs the Debian packages of missing programs. Returns false if that is not possible.
need() { # PROGRAM=PACKAGE...
    local missing=() pair
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    ((${#missing[@]} == 0)) || install_packages "${missing[@]}"
}

install_packages() { # PACKAGE...
    echo "installing: $*"
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        return 1
    fi
    # Once for each run of a script.
    if [[ -z ${PACKAGES_UPDATED:-} ]]; then
        timeout 300 apt-get update -qq || return 1
        export PACKAGES_UPDATED=1
    fi
    DEBIAN_FRONTEND=noninteractive timeout 600 \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# One bash session in which the blocks of a page run one after the other, sourced from files.
# $1 is a file for the line at which a block failed. On stdin come the blocks to run, as "HOW BLOCK OUTPUT", and on
# stdout goes the exit code of each. A block that fails ends the session; one that runs "apart" has a subshell.
set -Eeuo pipefail
trap '[[ ${BASH_SOURCE[0]-} != "$scenario_block" ]] || printf "%s\n" "$LINENO" >"$scenario_line"' ERR
scenario_line=$1
set --
while read -r scenario_how scenario_block scenario_output; do
  if [[ $scenario_how == here ]]; then
    source "$scenario_block" </dev/null >"$scenario_output" 2>&1
    set -Eeuo pipefail
    printf '0\n'
  else
    set +e
    ( set -e; source "$scenario_block" ) </dev/null >"$scenario_output" 2>&1
    scenario_code=$?
    set -e
    printf '%s\n' "$scenario_code"
  fi
done

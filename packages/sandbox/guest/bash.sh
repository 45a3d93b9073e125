# Runs inside a sandbox before a shell program. On descriptor 3 it writes, in frames as in node.cjs, that it is
# ready and that the program begins, and reads fields in between that end with a zero byte: variables, an empty one, INPUT, the
# program. Its end before the program means that the launcher has ended.
printf '\20\0\0\0{"kind":"ready"}' >&3
while IFS= read -r -d '' larkline_field <&3 || exit 0; do
  [ -n "$larkline_field" ] || break
  export "${larkline_field?}"
done
IFS= read -r -d '' INPUT <&3 || exit 0
IFS= read -r -d '' larkline_field <&3 || exit 0
# A longer variable would keep every command from starting.
[ ${#INPUT} -gt 30000 ] || export INPUT
printf '\20\0\0\0{"kind":"began"}' >&3
exec 3>&-
eval "unset larkline_field
$larkline_field"

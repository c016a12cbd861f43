#!/usr/bin/env bash
# A server for MCP in a few lines: each message is a line of JSON. It understands no more than this example says to it.
set -euo pipefail

# The value of a text in the message.
text() {
  [[ $line =~ \"$1\":\"([^\"]*)\" ]] || { fail "there is no $1"; return 1; }
  value=${BASH_REMATCH[1]}
}
answer() { printf '{"jsonrpc": "2.0", "id": %s, "result": %s}\n' "$id" "$1"; }
fail() { answer "{\"content\": [{\"type\": \"text\", \"text\": \"$1\"}], \"isError\": true}"; }

while IFS= read -r line; do
  [[ $line =~ \"id\":([0-9]+) ]] && id=${BASH_REMATCH[1]} || continue
  case $line in
    *'"method":"initialize"'*)
      answer '{"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "printer", "version": "1.0.0"}}'
      ;;
    *'"method":"tools/list"'*)
      answer '{"tools": [{"name": "print", "inputSchema": {"type": "object"}}, {"name": "take_down", "inputSchema": {"type": "object"}}]}'
      ;;
    *'"method":"tools/call"'*'"name":"print"'*)
      text text || continue
      mkdir -p posters
      name=posters/$(ls posters | wc -l).txt
      echo "$value" > "$name"
      answer "{\"content\": [], \"structuredContent\": {\"poster\": \"$name\"}}"
      ;;
    *'"method":"tools/call"'*'"name":"take_down"'*)
      text poster || continue
      rm -f "$value"
      answer '{"content": [{"type": "text", "text": "it is down"}]}'
      ;;
    *)
      printf '{"jsonrpc": "2.0", "id": %s, "error": {"code": -32601, "message": "the printer does not know that"}}\n' "$id"
      ;;
  esac
done

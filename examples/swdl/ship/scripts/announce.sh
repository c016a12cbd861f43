#!/bin/sh
# A hook: what the workflow fills in comes as whole arguments.
echo "$1 is out (run $2)" >> announced.txt

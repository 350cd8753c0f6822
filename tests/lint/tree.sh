# SPDX-License-Identifier: BSD-2-Clause
#
# The shape of the tree: what may stand at the top, and that no source or test is forgotten by the
# lists from which the Makefile builds and runs.
. tests/lint/lint.sh

top_level()
{
	files '*' | cut -d/ -f1 | sort -u |
		grep -vxE 'proto|common|server|client|bench|tests|deploy' |
		grep -vxE 'Makefile|README\.md|LICENSE|\.ci|\.(clang-format|editorconfig|gitignore)'
}

test_folders()
{
	files 'tests/*' | cut -d/ -f2 | sort -u |
		grep -vxE 'run|lib\.sh|module\.mk|unit|fabric|sim|proc|fault|fuzz|vm|lint'
}

# Sources, and scripts that stand where tests stand; lint.sh and the like are sourced by others.
unlisted()
{
	comm -13 <(listed | sort) <(files '*.c' 'tests/*/*.sh' | sort) | while read -r file; do
		case $file in
		*.c) echo "$file is in no list of a module.mk" ;;
		*.sh) grep -rqF ". $file" tests || echo "$file is in no list of a module.mk" ;;
		esac
	done
}

listed()
{
	MAKEFLAGS='' make -s listed
}

holds "only what ARCHITECTURE names stands at the top" top_level
catches "another file at the top" top_level NOTES.txt <<<'x'
catches "another folder at the top" top_level util/a.c <<<'x'
accepts "a folder we have" top_level proto/a.h <<<'x'
holds "tests have the folders that ARCHITECTURE names" test_folders
catches "another folder of tests" test_folders tests/misc/a.c <<<'x'

holds "every source and every test is in a list" unlisted
cp Makefile "$DIR/tree/Makefile"
mkdir -p "$DIR/tree/client/include"
cp client/include/rkv.h "$DIR/tree/client/include"
plant tests/unit/module.mk <<<'unit_TESTS += tests/unit/listed'
plant tests/unit/listed.sh <<<''
catches "a test that would never run" unlisted tests/unit/forgotten.sh <<<''

finish

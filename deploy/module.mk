# SPDX-License-Identifier: BSD-2-Clause

.PHONY: deps
deps: ## install what is missing to build and to test (apt-get)
	@deploy/deps.sh build test

.PHONY: demo
demo: ## a server, a client and a benchmark on this machine; installs what is missing first
	@deploy/deps.sh build
	@$(submake) all
	@RKV_BUILD='$(abspath $(O))' deploy/demo.sh

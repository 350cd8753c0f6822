/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Litmus tests: for each, whether a weak outcome can be reached, in each profile, in both
 * directions: a profile that allows too little would prove nothing, one that allows too much would
 * cry wolf.
 *   A  ordering of READ and WRITE    R  atomics    K  what a key-value store does
 *   I  INSERT's search for its rivals, also with a card whose atomics exclude each other by word
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/litmus.h"

struct test {
	const char *id;
	const char *what;
	const char *locations;
	const char *qps;
	const char *threads;
	const char *weak;     /* the condition asked for */
	const char *verdicts; /* a letter a profile, in their order: Y = can be reached */
};

static const struct test tests[] = {
	{"A1", "a WRITE reads its source late", "x1=0 z2=0", "q=T1>2", "T1: w q z2=x1; st x1 1",
	 "[z2]=1", "-YYYYYY"},
	{"A2", "a completion gives the source back", "x1=0 z2=0", "q=T1>2",
	 "T1: w q z2=x1; poll q; st x1 1", "[z2]=1", "-------"},
	{"A3", "a CPU fence does not", "x1=0 z2=0", "q=T1>2", "T1: w q z2=x1; mfence; st x1 1",
	 "[z2]=1", "-YYYYYY"},
	{"A4", "an inlined WRITE reads nothing late", "x1=0 z2=0", "q=T1>2",
	 "T1: ld a x1; wi q z2=a; st x1 1", "[z2]=1", "-------"},
	{"A5", "a READ lands late", "x1=0 z2=1", "q=T1>2", "T1: r q x1=z2; ld a x1", "T1.a=0",
	 "-YYYYYY"},
	{"A6", "a completion proves that it landed", "x1=0 z2=1", "q=T1>2",
	 "T1: r q x1=z2; poll q; ld a x1", "T1.a=0", "-------"},
	{"A7", "a store before the post is seen by the card", "x1=0 z2=0", "q=T1>2",
	 "T1: st x1 1; w q z2=x1", "[z2]=0", "-------"},
	{"A8", "WRITEs of one word overtake each other", "w1=2 x2=0 y1=1", "q=T1>2",
	 "T1: w q x2=y1; w q x2=w1 | T2: ld a x2; ld b x2", "T2.a=2 T2.b=1", "----YYY"},
	{"A8b", "the same, by what stays", "x2=0", "q=T1>2", "T1: wi q x2=1; wi q x2=2", "[x2]=1",
	 "----YYY"},
	{"A9", "WRITEs of two words, CPU reader", "w2=0 z2=0", "q=T1>2",
	 "T1: wi q z2=1; wi q w2=1 | T2: ld a w2; ld b z2", "T2.a=1 T2.b=0", "---YYYY"},
	{"A10", "the same on two queue pairs", "w2=0 z2=0", "q=T1>2 p=T1>2",
	 "T1: wi q z2=1; wi p w2=1 | T2: ld a w2; ld b z2", "T2.a=1 T2.b=0", "-YYYYYY"},
	{"A11", "the same, waiting for the first", "w2=0 z2=0", "q=T1>2 p=T1>2",
	 "T1: wi q z2=1; poll q; wi p w2=1 | T2: ld a w2; ld b z2", "T2.a=1 T2.b=0", "--YYYYY"},
	{"A12", "a fence does not order WRITEs", "w2=0 z1=1 z2=0", "q=T1>2",
	 "T1: wi q z2=1; wf q w2=z1 | T2: ld a w2; ld b z2", "T2.a=1 T2.b=0", "---YYYY"},
	{"A13", "WRITE, completion, WRITE at another node", "r3=0 w3=0 z2=0",
	 "q=T1>2 p=T1>3 s=T3>2",
	 "T1: wi q z2=1; poll q; wi p w3=1 | T3: await w3 1; r s r3=z2; poll s; ld a r3", "T3.a=0",
	 "--YYYYY"},
	{"A14", "a READ of the bytes in between", "f1=0 r3=0 w3=0 z2=0", "q=T1>2 p=T1>3 s=T3>2",
	 "T1: wi q z2=1; r q f1=z2; poll q; poll q; wi p w3=1 | T3: await w3 1; "
	 "r s r3=z2; poll s; ld a r3",
	 "T3.a=0", "------Y"},
	{"A15", "a READ of other bytes in between", "f1=0 r3=0 u2=0 w3=0 z2=0",
	 "q=T1>2 p=T1>3 s=T3>2",
	 "T1: wi q z2=1; r q f1=u2; poll q; poll q; wi p w3=1 | T3: await w3 1; "
	 "r s r3=z2; poll s; ld a r3",
	 "T3.a=0", "---YYYY"},
	{"A16", "a WRITE overtakes a READ", "x1=0 z2=0", "q=T1>2",
	 "T1: r q x1=z2; wi q z2=1; poll q; poll q; ld a x1", "T1.a=1", "-YYYYYY"},
	{"A17", "not if it is fenced", "x1=0 y1=1 z2=0", "q=T1>2",
	 "T1: r q x1=z2; wf q z2=y1; poll q; poll q; ld a x1", "T1.a=1", "-------"},
	{"A18", "a WRITE reads its source before a READ landed there", "w2=0 x1=0 z2=1", "q=T1>2",
	 "T1: r q x1=z2; w q w2=x1", "[w2]=0", "-YYYYYY"},
	{"A19", "not if it is fenced", "w2=0 x1=0 z2=1", "q=T1>2", "T1: r q x1=z2; wf q w2=x1",
	 "[w2]=0", "-------"},
	{"A20", "a READ overtakes a WRITE of the same bytes", "x1=0 z2=0", "q=T1>2",
	 "T1: wi q z2=1; r q x1=z2; poll q; poll q; ld a x1", "T1.a=0", "------Y"},
	{"A21", "a READ on another queue pair after the completion", "x1=0 z2=0", "q=T1>2 p=T1>2",
	 "T1: wi q z2=1; poll q; r p x1=z2; poll p; ld a x1", "T1.a=0", "--YYYYY"},
	{"A22", "READ overtakes READ", "w2=0 x1=0 y1=0 z2=0", "q=T1>2",
	 "T1: r q x1=w2; r q y1=z2; poll q; poll q; ld a x1; ld b y1 | T2: st z2 1; "
	 "st w2 1",
	 "T1.a=1 T1.b=0", "--Y--YY"},
	{"A23", "not after its completion", "w2=0 x1=0 y1=0 z2=0", "q=T1>2",
	 "T1: r q x1=w2; poll q; r q y1=z2; poll q; ld a x1; ld b y1 | T2: st z2 1; "
	 "st w2 1",
	 "T1.a=1 T1.b=0", "-------"},
	{"A24", "store buffering with completions", "x1=0 z2=0", "q=T1>2 p=T2>1",
	 "T1: wi q z2=1; poll q; ld a x1 | T2: wi p x1=1; poll p; ld b z2", "T1.a=0 T2.b=0",
	 "-YYYYYY"},
	{"A25", "with READs of the bytes instead", "f1=0 f2=0 x1=0 z2=0", "q=T1>2 p=T2>1",
	 "T1: wi q z2=1; r q f1=z2; poll q; poll q; ld a x1 | T2: wi p x1=1; r p f2=x1; "
	 "poll p; poll p; ld b z2",
	 "T1.a=0 T2.b=0", "------Y"},
	{"A26", "a completion stands for the oldest request only", "w2=0 x1=0 y1=0 z2=0", "q=T1>2",
	 "T1: w q z2=x1; w q w2=y1; poll q; st y1 1", "[w2]=1", "-YYYYYY"},
	{"A27", "WRITE, completion, READ back", "x2=0 y1=2 z1=1", "q=T1>2",
	 "T1: w q x2=y1; poll q; r q z1=x2; poll q; ld b z1 | T2: ld a x2", "T1.b!=2", "------Y"},
	{"R1", "two remote CAS both win", "x1=9 x3=9 z2=0", "q=T1>2 s=T3>2",
	 "T1: cas q x1=z2 0 1; poll q; ld a x1 | T3: cas s x3=z2 0 2; poll s; ld a x3",
	 "T1.a=0 T3.a=0", "-------"},
	{"R2", "a remote and a local CAS both win", "x1=9 z2=0", "q=T1>2",
	 "T1: cas q x1=z2 0 1; poll q; ld a x1 | T2: lcas b z2 0 2", "T1.a=0 T2.b=0", "-YYYYYY"},
	{"R3", "a WRITE between the halves of FAA", "x1=9 z2=0", "q=T1>2 s=T3>2",
	 "T1: faa q x1=z2 1 | T3: wi s z2=5", "[z2]=1 [x1]=0", "--YYYYY"},
	{"R4", "a store between the halves of FAA", "x1=9 z2=0", "q=T1>2",
	 "T1: faa q x1=z2 1 | T2: st z2 5", "[z2]=1 [x1]=0", "-YYYYYY"},
	{"R5", "a CAS that fails writes nothing", "x1=9 z2=1", "q=T1>2 s=T3>2",
	 "T1: cas q x1=z2 0 7 | T3: wi s z2=0", "[z2]=1", "-------"},
	{"R6", "a WRITE overtakes a CAS", "d2=0 l2=0 x1=9", "q=T1>2",
	 "T1: cas q x1=l2 0 1; wi q d2=1 | T2: ld a d2; ld b l2", "T2.a=1 T2.b=0", "---YYYY"},
	{"R7", "not if it is fenced", "d2=0 l2=0 x1=9 y1=1", "q=T1>2",
	 "T1: cas q x1=l2 0 1; wf q d2=y1 | T2: ld a d2; ld b l2", "T2.a=1 T2.b=0", "-------"},
	{"R8", "CAS overtakes CAS", "l2=0 m2=0 x1=9 y1=9", "q=T1>2",
	 "T1: cas q x1=l2 0 1; cas q y1=m2 0 1 | T2: ld a m2; ld b l2", "T2.a=1 T2.b=0", "---YYYY"},
	{"R9", "a CAS overtakes a WRITE", "d2=0 l2=0 x1=9", "q=T1>2",
	 "T1: wi q d2=1; cas q x1=l2 0 1 | T2: ld a l2; ld b d2", "T2.a=1 T2.b=0", "-------"},
	{"R10", "a lock given back by WRITE", "d2=0 l2=1 x1=9 y1=9", "q=T1>2 s=T3>2",
	 "T3: wi s d2=1; wi s l2=0 | T1: cas q x1=l2 0 1; r q y1=d2; poll q; poll q; "
	 "ld a x1; ld b y1",
	 "T1.a=0 T1.b=0", "---YYYY"},
	{"R11", "a lock given back by FAA", "d2=0 l2=1 x1=9 y1=9 z3=0", "q=T1>2 s=T3>2",
	 "T3: wi s d2=1; faa s z3=l2 -1 | T1: cas q x1=l2 0 1; r q y1=d2; poll q; "
	 "poll q; ld a x1; ld b y1",
	 "T1.a=0 T1.b=0", "-------"},
	{"A28", "WRITEs to two nodes", "r2=9 w3=0 z2=0", "q=T1>2 p=T1>3 o=T2>3",
	 "T1: wi q z2=1; wi p w3=1 | T2: r o r2=w3; poll o; ld a r2; ld b z2", "T2.a=1 T2.b=0",
	 "-YYYYYY"},
	{"A29", "load buffering", "a1=0 b2=0 x1=0 z2=0", "q=T1>2 p=T2>1",
	 "T1: r q a1=z2; poll q; ld a a1; st x1 1 | T2: r p b2=x1; poll p; ld b b2; "
	 "st z2 1",
	 "T1.a=1 T2.b=1", "-------"},
	{"A30", "one word read twice, waiting", "a1=9 b1=9 z2=0", "q=T1>2 s=T3>2",
	 "T3: wi s z2=1 | T1: r q a1=z2; poll q; r q b1=z2; poll q", "[a1]=1 [b1]=0", "-------"},
	{"A31", "one word read twice, not waiting", "a1=9 b1=9 z2=0", "q=T1>2 s=T3>2",
	 "T3: wi s z2=1 | T1: r q a1=z2; r q b1=z2; poll q; poll q", "[a1]=1 [b1]=0", "--Y--YY"},
	{"R12", "a READ sees a CAS behind it", "a1=9 b1=9 z2=0", "q=T1>2",
	 "T1: r q a1=z2; cas q b1=z2 0 1; poll q; poll q", "[a1]=1", "-YYYYYY"},
	{"R13", "CAS, completion, READ on another queue pair", "a1=9 b1=9 z2=0", "q=T1>2 p=T1>2",
	 "T1: cas q b1=z2 0 1; poll q; r p a1=z2; poll p", "[a1]=0", "--YYYYY"},
	{"R14", "the loser of a CAS reads the old word", "a3=9 b3=9 x1=9 z2=0", "q=T1>2 s=T3>2",
	 "T1: cas q x1=z2 0 1 | T3: cas s b3=z2 0 2; poll s; r s a3=z2; poll s", "[b3]=1 [a3]=0",
	 "-------"},
	{"K1", "publish: WRITE block, CAS slot", "b4=9 c2=0 f1=0 k2=0 s4=0 x1=9", "q=T1>2 v=T4>2",
	 "T1: wi q k2=1; cas q x1=c2 0 1 | T4: r v s4=c2; poll v; ld a s4; "
	 "unless a 1 4; r v b4=k2; poll v; ld b b4; skip 1; st b4 7",
	 "T4.a=1 T4.b=0", "-------"},
	{"K1w", "publish by WRITE", "b4=9 c2=0 f1=0 k2=0 s4=0 x1=9", "q=T1>2 v=T4>2",
	 "T1: wi q k2=1; wi q c2=1 | T4: r v s4=c2; poll v; ld a s4; unless a 1 4; "
	 "r v b4=k2; poll v; ld b b4; skip 1; st b4 7",
	 "T4.a=1 T4.b=0", "---YYYY"},
	{"K1f", "publish by fenced WRITE", "b4=9 c2=0 k2=0 o1=1 s4=0", "q=T1>2 v=T4>2",
	 "T1: wi q k2=1; wf q c2=o1 | T4: r v s4=c2; poll v; ld a s4; unless a 1 4; "
	 "r v b4=k2; poll v; ld b b4; skip 1; st b4 7",
	 "T4.a=1 T4.b=0", "---YYYY"},
	{"K1x", "publish by CAS on another queue pair", "b4=9 c2=0 f1=0 k2=0 s4=0 x1=9",
	 "q=T1>2 p=T1>2 v=T4>2",
	 "T1: wi q k2=1; cas p x1=c2 0 1 | T4: r v s4=c2; poll v; ld a s4; "
	 "unless a 1 4; r v b4=k2; poll v; ld b b4; skip 1; st b4 7",
	 "T4.a=1 T4.b=0", "-YYYYYY"},
	{"K1y", "the same after the completion", "b4=9 c2=0 f1=0 k2=0 s4=0 x1=9",
	 "q=T1>2 p=T1>2 v=T4>2",
	 "T1: wi q k2=1; poll q; cas p x1=c2 0 1 | T4: r v s4=c2; poll v; ld a s4; "
	 "unless a 1 4; r v b4=k2; poll v; ld b b4; skip 1; st b4 7",
	 "T4.a=1 T4.b=0", "--YYYYY"},
	{"K2", "block and slot on two nodes", "b4=9 c3=0 f1=0 k2=0 s4=0 x1=9",
	 "q=T1>2 p=T1>3 u=T4>3 v=T4>2",
	 "T1: wi q k2=1; cas p x1=c3 0 1 | T4: r u s4=c3; poll u; ld a s4; "
	 "unless a 1 4; r v b4=k2; poll v; ld b b4; skip 1; st b4 7",
	 "T4.a=1 T4.b=0", "-YYYYYY"},
	{"K3", "the same, waiting for the WRITE", "b4=9 c3=0 f1=0 k2=0 s4=0 x1=9",
	 "q=T1>2 p=T1>3 u=T4>3 v=T4>2",
	 "T1: wi q k2=1; poll q; cas p x1=c3 0 1 | T4: r u s4=c3; poll u; ld a s4; "
	 "unless a 1 4; r v b4=k2; poll v; ld b b4; skip 1; st b4 7",
	 "T4.a=1 T4.b=0", "--YYYYY"},
	{"K4", "the same, READ of the block in between", "b4=9 c3=0 f1=0 k2=0 s4=0 x1=9",
	 "q=T1>2 p=T1>3 u=T4>3 v=T4>2",
	 "T1: wi q k2=1; r q f1=k2; poll q; poll q; cas p x1=c3 0 1 | T4: r u s4=c3; "
	 "poll u; ld a s4; unless a 1 4; r v b4=k2; poll v; ld b b4; skip 1; st b4 7",
	 "T4.a=1 T4.b=0", "------Y"},
	{"K4d", "the same, READ of other bytes", "b4=9 c3=0 f1=0 k2=0 s4=0 x1=9 z2=0",
	 "q=T1>2 p=T1>3 u=T4>3 v=T4>2",
	 "T1: wi q k2=1; r q f1=z2; poll q; poll q; cas p x1=c3 0 1 | T4: r u s4=c3; "
	 "poll u; ld a s4; unless a 1 4; r v b4=k2; poll v; ld b b4; skip 1; st b4 7",
	 "T4.a=1 T4.b=0", "---YYYY"},
	{"K4a", "the same, FAA in between", "b4=9 c3=0 f1=0 k2=0 s4=0 x1=9 z2=0",
	 "q=T1>2 p=T1>3 u=T4>3 v=T4>2",
	 "T1: wi q k2=1; faa q f1=z2 0; poll q; poll q; cas p x1=c3 0 1 | "
	 "T4: r u s4=c3; poll u; ld a s4; unless a 1 4; r v b4=k2; poll v; ld b b4; "
	 "skip 1; st b4 7",
	 "T4.a=1 T4.b=0", "-------"},
	{"K6", "slot and block read together", "b4=9 c2=0 k2=0 s4=0 x1=9", "q=T1>2 v=T4>2",
	 "T1: wi q k2=1; cas q x1=c2 0 1 | T4: r v s4=c2; r v b4=k2; poll v; poll v; "
	 "ld a s4; ld b b4",
	 "T4.a=1 T4.b=0", "--Y--YY"},
	{"K7", "an object is torn", "a4=9 b4=9 d2=0 h2=0", "q=T1>2 v=T4>2",
	 "T1: wi q h2=1,d2=1 | T4: r v a4=h2,b4=d2; poll v", "[a4]!=[b4]", "-YYYYYY"},
	{"K7v", "versions at both ends do not help", "a4=9 b4=9 c4=9 d2=0 f2=0 h2=0",
	 "q=T1>2 v=T4>2", "T1: wi q h2=1,d2=1,f2=1 | T4: r v a4=h2,b4=d2,c4=f2; poll v",
	 "[a4]=1 [c4]=1 [b4]=0", "-YYYYYY"},
	{"K9", "versions read before and after", "a4=9 b4=9 c4=9 d2=0 v2=0", "q=T1>2 v=T4>2",
	 "T1: wi q v2=1; wi q d2=1; wi q v2=2 | T4: r v a4=v2; poll v; r v b4=d2; "
	 "poll v; r v c4=v2; poll v",
	 "[a4]=0 [c4]=0 [b4]=1", "---YYYY"},
	{"K9b", "the same, not waiting", "a4=9 b4=9 c4=9 d2=0 v2=0", "q=T1>2 v=T4>2",
	 "T1: wi q v2=1; wi q d2=1; wi q v2=2 | T4: r v a4=v2; r v b4=d2; r v c4=v2; "
	 "poll v; poll v; poll v",
	 "[a4]=0 [c4]=0 [b4]=1", "--YYYYY"},
	{"K12", "a CPU polls the last word of a WRITE", "d2=0 f2=0", "q=T1>2",
	 "T1: wi q d2=1,f2=1 | T2: await f2 1; ld a d2", "T2.a=0", "---YYYY"},
	{"K16", "WRITE, completion, message, READ elsewhere", "x3=9 z2=0", "q=T1>2 s=T3>2",
	 "T1: wi q z2=1; poll q; send | T3: recv; r s x3=z2; poll s; ld a x3", "T3.a=0", "--YYYYY"},
	{"K16c", "CAS, completion, message, READ elsewhere", "x1=9 x3=9 z2=0", "q=T1>2 s=T3>2",
	 "T1: cas q x1=z2 0 1; poll q; send | T3: recv; r s x3=z2; poll s; ld a x3", "T3.a=0",
	 "--YYYYY"},
	{"K16r", "CAS, READ of the slot, message, READ elsewhere", "f1=9 x1=9 x3=9 z2=0",
	 "q=T1>2 s=T3>2",
	 "T1: cas q x1=z2 0 1; r q f1=z2; poll q; poll q; send | T3: recv; r s x3=z2; "
	 "poll s; ld a x3",
	 "T3.a=0", "------Y"},
	{"K16a", "CAS, completion, message, FAA elsewhere", "x1=9 x3=9 z2=0", "q=T1>2 s=T3>2",
	 "T1: cas q x1=z2 0 1; poll q; send | T3: recv; faa s x3=z2 0; poll s; ld a x3", "T3.a=0",
	 "-------"},
	{"K17", "WRITE, READ, message, the CPU there looks", "f1=0 z2=0", "q=T1>2",
	 "T1: wi q z2=1; r q f1=z2; poll q; poll q; send | T2: recv; ld a z2", "T2.a=0", "------Y"},
	{"K17n", "the same without the READ", "f1=0 z2=0", "q=T1>2",
	 "T1: wi q z2=1; poll q; send | T2: recv; ld a z2", "T2.a=0", "-YYYYYY"},
	{"K18", "two READs into one buffer", "x1=0 y2=1 z2=2", "q=T1>2",
	 "T1: r q x1=y2; r q x1=z2; poll q; ld a x1", "T1.a=2", "YYYYYYY"},
	{"K19", "two clients overwrite one object", "d2=0 h2=0", "q=T1>2 s=T3>2",
	 "T1: wi q h2=1,d2=1 | T3: wi s h2=3,d2=3", "[h2]!=[d2]", "--YYYYY"},
	{"K21", "PUT in one round trip, then GET elsewhere", "b4=9 c2=0 f1=9 k2=0 s4=9 x1=9",
	 "q=T1>2 v=T4>2",
	 "T1: wi q k2=1; cas q x1=c2 0 1; r q f1=c2; poll q; poll q; poll q; send | "
	 "T4: recv; r v s4=c2; poll v; r v b4=k2; poll v; ld a s4; ld b b4",
	 "T4.a=0 | T4.b=0", "------Y"},
	{"K22", "a block is used again under a reader", "b4=9 c2=1 k2=1 s4=9 x1=9", "q=T1>2 v=T4>2",
	 "T1: cas q x1=c2 1 0; poll q; wi q k2=7 | T4: r v s4=c2; poll v; r v b4=k2; "
	 "poll v; ld a s4; ld b b4",
	 "T4.a=1 T4.b=7", "YYYYYYY"},
};

/*
 * Two inserters, each with a slot of its own: may both miss the other's word? Where they may (Y), a
 * key could get two committed words.
 */
struct insert_test {
	struct test test;        /* verdicts: one unit for a node's atomics */
	const char *per_address; /* the same with one unit for each word */
};

#define INSERT_LOCATIONS "a1=9 a3=9 c2=0 d2=0 f1=9 f3=9 x1=9 x3=9"
#define INSERT_QPS "q=T1>2 s=T3>2"
#define INSERT_MISSED "[a1]=0 [a3]=0 [x1]=0 [x3]=0"

static const struct insert_test insert_tests[] = {
	{{"I1", "CAS own, READ other", INSERT_LOCATIONS, INSERT_QPS,
	  "T1: cas q x1=c2 0 1; r q a1=d2; poll q; poll q | "
	  "T3: cas s x3=d2 0 1; r s a3=c2; poll s; poll s",
	  INSERT_MISSED, "-------"},
	 "---YYYY"},
	{{"I2", "CAS own, wait, READ other", INSERT_LOCATIONS, INSERT_QPS,
	  "T1: cas q x1=c2 0 1; poll q; r q a1=d2; poll q | "
	  "T3: cas s x3=d2 0 1; poll s; r s a3=c2; poll s",
	  INSERT_MISSED, "-------"},
	 "---YYYY"},
	{{"I3", "CAS own, READ own, wait, READ other", INSERT_LOCATIONS, INSERT_QPS,
	  "T1: cas q x1=c2 0 1; r q f1=c2; poll q; poll q; r q a1=d2; poll q | "
	  "T3: cas s x3=d2 0 1; r s f3=d2; poll s; poll s; r s a3=c2; poll s",
	  INSERT_MISSED, "-------"},
	 "------Y"},
	{{"I4", "CAS own, both in one READ", INSERT_LOCATIONS, INSERT_QPS,
	  "T1: cas q x1=c2 0 1; r q f1=c2,a1=d2; poll q; poll q | "
	  "T3: cas s x3=d2 0 1; r s a3=c2,f3=d2; poll s; poll s",
	  INSERT_MISSED, "-------"},
	 "---YYYY"},
	{{"I5", "CAS own, FAA other", INSERT_LOCATIONS, INSERT_QPS,
	  "T1: cas q x1=c2 0 1; faa q a1=d2 0; poll q; poll q | "
	  "T3: cas s x3=d2 0 1; faa s a3=c2 0; poll s; poll s",
	  INSERT_MISSED, "---YYYY"},
	 "---YYYY"},
	{{"I6", "CAS own, READ own, READ other", INSERT_LOCATIONS, INSERT_QPS,
	  "T1: cas q x1=c2 0 1; r q f1=c2; r q a1=d2; poll q; poll q; poll q | "
	  "T3: cas s x3=d2 0 1; r s f3=d2; r s a3=c2; poll s; poll s; poll s",
	  INSERT_MISSED, "-------"},
	 "-----YY"},
};

static void
note_if_weak(void *arg, const struct litmus_state *state)
{
	const struct test *test = ((const void **)arg)[0];
	bool *weak = ((void **)arg)[1];

	*weak |= litmus_holds(state, test->weak);
}

struct sum {
	uint64_t n_verdicts;
	uint64_t n_states;
	unsigned n_wrong;
};

static void
check_verdicts(const struct test *test, const char *verdicts, bool unit_per_address,
	       struct sum *sum)
{
	struct litmus *litmus = litmus_parse(test->locations, test->qps, test->threads);

	for (unsigned p = 0; p < N_PROFILES; p++) {
		struct model_config config = {.profile = (enum profile)p,
					      .unit_per_address = unit_per_address};
		struct litmus_stats stats;
		bool weak = false;

		litmus_explore(litmus, &config, note_if_weak, (void *[]){(void *)test, &weak},
			       &stats);
		sum->n_verdicts++;
		sum->n_states += stats.n_states;
		if (weak == (verdicts[p] == 'Y') && stats.n_ends)
			continue;
		sum->n_wrong++;
		print_message("# %s (%s) in %s: %s, expected %s\n", test->id, test->what,
			      profile_name((enum profile)p), weak ? "reached" : "not reached",
			      weak ? "not" : "reached");
	}
	litmus_destroy(litmus);
}

static void
test_verdicts(void **state)
{
	struct sum sum = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		check_verdicts(&tests[i], tests[i].verdicts, false, &sum);
	print_message("# %zu programs, %llu verdicts, %llu states\n",
		      sizeof(tests) / sizeof(tests[0]), (unsigned long long)sum.n_verdicts,
		      (unsigned long long)sum.n_states);
	assert_int_equal(sum.n_wrong, 0);
}

static void
test_insert(void **state)
{
	struct sum sum = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(insert_tests) / sizeof(insert_tests[0]); i++) {
		const struct insert_test *insert = &insert_tests[i];

		check_verdicts(&insert->test, insert->test.verdicts, false, &sum);
		check_verdicts(&insert->test, insert->per_address, true, &sum);
	}
	print_message("# %llu verdicts, %llu states\n", (unsigned long long)sum.n_verdicts,
		      (unsigned long long)sum.n_states);
	assert_int_equal(sum.n_wrong, 0);
}

/*
 * Rules that only other designs than ours depend on: what is right, and the same broken in one
 * place, as programs above. (Rules that client/op.c depends on are broken there:
 * tests/sim/mutants/table.)
 */
static const struct mutant {
	const char *id;
	const char *rule;
	const char *right;
	const char *broken;
} mutants[] = {
	{"M2", "a slot on another node waits for a READ of the block", "K4", "K3"},
	{"M3", "that READ is of the very bytes", "K4", "K4d"},
	{"M5", "a word is published by an atomic, a fence will not do", "K1", "K1f"},
	{"M8", "a torn object is told by its checksum, not by versions at both ends", "K1", "K7v"},
	{"M12", "a lock is given back by an atomic", "R11", "R10"},
	{"M13", "a word has one agent, which is not the server's CPU", "R1", "R2"},
	{"M15", "a CPU waits for a word that an atomic wrote, not for a WRITE's last one", "R9",
	 "K12"},
};

static const struct test *
find_test(const char *id)
{
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (strcmp(tests[i].id, id) == 0)
			return &tests[i];
	fail_msg("there is no program %s", id);
	return NULL;
}

/* Their verdicts are test_verdicts' affair; here: that they tell the right from the broken. */
static void
test_mutants(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++) {
		const struct mutant *m = &mutants[i];
		const char *right = find_test(m->right)->verdicts;
		const char *broken = find_test(m->broken)->verdicts;

		print_message("# %s, %s: %s, not %s\n", m->id, m->rule, m->right, m->broken);
		for (unsigned p = 0; p < PROFILE_UNORD; p++)
			assert_int_equal(right[p], '-');
		assert_int_equal(broken[PROFILE_WORST], 'Y');
		assert_int_equal(broken[PROFILE_SC], '-');
	}
}

int
main(void)
{
	const struct CMUnitTest list[] = {
		cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_insert),
		cmocka_unit_test(test_mutants),
	};

	return cmocka_run_group_tests(list, NULL, NULL);
}

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Computes in a function of assembly, of x86-64, whose frame is found by a register that compilers
 * do not use for that, as of OpenSSL's bn_mul_mont; its frame pointer is none. "spins" is said first.
 */
#include <stdio.h>

void planted_assembly(long rounds);

__asm__(
	".text\n"
	".type planted_assembly, @function\n"
	"planted_assembly:\n"
	"	.cfi_startproc\n"
	"	push %rbp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	.cfi_rel_offset %rbp, 0\n"
	"	mov %rsp, %rax\n"
	"	.cfi_def_cfa_register %rax\n"
	"	mov $5, %r9\n"
	"	sub $64, %rsp\n"
	"	mov %rax, 8(%rsp,%r9,8)\n"
	/* The frame: what the word at 8 + rsp + 8 * r9 holds, and 16. */
	"	.cfi_escape 0x0f, 12, 0x77, 8, 0x79, 0, 0x38, 0x1e, 0x22, 0x06, 0x23, 16, 0x30, 0x22\n"
	"	xor %ebp, %ebp\n"
	"	xor %eax, %eax\n"
	"1:	imul $31, %rbp, %rbp\n"
	"	add $7, %rbp\n"
	"	dec %rdi\n"
	"	jnz 1b\n"
	"	mov 8(%rsp,%r9,8), %rax\n"
	"	.cfi_def_cfa %rax, 16\n"
	"	mov %rax, %rsp\n"
	"	.cfi_def_cfa %rsp, 16\n"
	"	pop %rbp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	.cfi_restore %rbp\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size planted_assembly, .-planted_assembly\n");

__attribute__((noinline)) void planted_caller(void)
{
	planted_assembly(20000000);
	/* Else it would be a jump. */
	__asm__ volatile("");
}

int main(void)
{
	puts("spins");
	fflush(stdout);
	for (;;)
		planted_caller();
}

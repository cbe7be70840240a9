// The stubs of a newer driver's functions. They end with a jump, so that a stub needs to know neither
// arguments nor result.
#include "interpose/hooks/keep_registers.inc"

.macro keep_vectors registers:vararg
  .set vector_at, 0
  .irp register, \registers
  movups \register, vector_at(%rsp)
  .set vector_at, vector_at+16
  .endr
.endm

.macro restore_vectors registers:vararg
  .set vector_at, 0
  .irp register, \registers
  movups vector_at(%rsp), \register
  .set vector_at, vector_at+16
  .endr
.endm

.text
.balign 32
.globl spillway_stubs
.hidden spillway_stubs
.type spillway_stubs, @function
spillway_stubs:
.set stub_number, 0
.rept 256  // kStubs, of kStubBytes each
  .balign 32
  .cfi_startproc
  endbr64
  cmpb $0, spillway_stub_called+stub_number(%rip)
  je 1f
  jmpq *spillway_stub_targets+8*stub_number(%rip)
1:
  keep $stub_number
  jmp stub_first_call
  .cfi_endproc
.set stub_number, stub_number+1
.endr
.size spillway_stubs, .-spillway_stubs

// What a function's caller may have put into registers is kept over the note of the first call.
.balign 16
.type stub_first_call, @function
stub_first_call:
  .cfi_startproc
  .cfi_adjust_cfa_offset 8
  keep %rdi, %rsi, %rdx, %rcx, %r8, %r9, %rax
  subq $136, %rsp
  .cfi_adjust_cfa_offset 136
  keep_vectors %xmm0, %xmm1, %xmm2, %xmm3, %xmm4, %xmm5, %xmm6, %xmm7
  movq 192(%rsp), %rdi
  call spillway_stub_first
  movq %rax, 192(%rsp)
  restore_vectors %xmm0, %xmm1, %xmm2, %xmm3, %xmm4, %xmm5, %xmm6, %xmm7
  addq $136, %rsp
  .cfi_adjust_cfa_offset -136
  restore %rax, %r9, %r8, %rcx, %rdx, %rsi, %rdi, %r11
  jmpq *%r11
  .cfi_endproc
.size stub_first_call, .-stub_first_call

.section .note.GNU-stack, "", @progbits

// dlsym and dlvsym. They end with a jump, so that the C library sees the caller's own frame.
#include "interpose/hooks/keep_registers.inc"

// `spillway_answer_FUNCTION` has the caller's arguments. Where it has no answer, the C library's own function,
// in `spillway_next_FUNCTION`, is asked in the caller's name.
.macro look_up function
.globl \function
.type \function, @function
\function:
  .cfi_startproc
  endbr64
  keep %rdi, %rsi, %rdx
  call spillway_answer_\function
  restore %rdx, %rsi, %rdi
  testq %rax, %rax
  jne 1f
  jmpq *spillway_next_\function(%rip)
1:
  ret
  .cfi_endproc
.size \function, .-\function
.endm

.text
look_up dlsym
look_up dlvsym

.section .note.GNU-stack, "", @progbits

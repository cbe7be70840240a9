// The page that page/assemble.py has put together, as it is.
  .section .rodata
  .globl spillway_page_start, spillway_page_end
spillway_page_start:
  .incbin SPILLWAY_PAGE_TEMPLATE
spillway_page_end:
  .byte 0
  .section .note.GNU-stack, "", %progbits

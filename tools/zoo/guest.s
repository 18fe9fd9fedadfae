# A boot sector that writes all memory between 1 and 33 MiB again and again. Before it writes generation N to a page, it
# checks that N - 1 is there. It prints a '.' to the first serial port for each generation, and an 'X' for a wrong page.

        .code16
        .globl  _start
_start:
        cli
        xorw    %ax, %ax
        movw    %ax, %ds
        # Address line 20, by the fast gate.
        inb     $0x92, %al
        orb     $2, %al
        outb    %al, $0x92
        lgdt    descriptor
        movl    %cr0, %eax
        orb     $1, %al
        movl    %eax, %cr0
        ljmp    $8, $protected

        .code32
protected:
        movw    $16, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movl    $0x100000, %edi
        movl    $0x2000000 / 4, %ecx
        xorl    %eax, %eax
        rep stosl
        # Generation.
        xorl    %ebx, %ebx
again:
        movl    $0x100000, %edi
page:
        cmpl    %ebx, (%edi)
        jne     wrong
        cmpl    %ebx, 4092(%edi)
        jne     wrong
        incl    (%edi)
        incl    4092(%edi)
        addl    $4096, %edi
        cmpl    $0x2100000, %edi
        jb      page
        incl    %ebx
        movb    $'.', %al
        call    put
        jmp     again
wrong:
        movb    $'X', %al
        call    put
        hlt
        jmp     wrong

put:
        movb    %al, %ah
        movw    $0x3fd, %dx
busy:
        inb     %dx, %al
        testb   $0x20, %al
        jz      busy
        movb    %ah, %al
        movw    $0x3f8, %dx
        outb    %al, %dx
        ret

        .balign 8
table:
        .quad   0
        .quad   0x00cf9a000000ffff
        .quad   0x00cf92000000ffff
descriptor:
        .word   . - table - 1
        .long   table

        .org    510
        .word   0xaa55

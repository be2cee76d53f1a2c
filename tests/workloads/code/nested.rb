# Threads that wait in nested functions; what Ruby says of where they are goes to standard output: for
# each thread a line with what pthread_self() returns in it, a line for each function, the innermost
# first (name, file; of what is in C, the file of who calls it), and an empty line.
# encoding: utf-8
require "fiddle"

PTHREAD_SELF = Fiddle::Function.new(Fiddle.dlopen(nil)["pthread_self"], [], Fiddle::TYPE_LONG_LONG)
WAITING = Queue.new

def here
  Thread.current[:pthread] = PTHREAD_SELF.call
  WAITING << Thread.current
end

module Größe
  class Wächter
    attr_reader :door

    def initialize
      @door = Mutex.new
    end

    define_method(:wächst) { |_| begins }

    def self.waits
      here
      sleep
    end

    def begins
      [3, 1].sort_by do |each|
        [each].map { |_| self.class.waits }
      end
    end

    def <=>(other)
      raise "it is asked"
    rescue RuntimeError
      wächst(other)
    ensure
      @asked = true
    end
    include Comparable
  end

  module_function

  def sorts
    Wächter.new == Wächter.new
  end
end

class Outer < Struct.new(:inner)
  def method_missing(name, *)
    name == :asks ? yield : super
  end

  def respond_to_missing?(*)
    true
  end
end

def evaluates
  eval("Outer.new.asks { Größe.sorts }", binding, "/srv/evaluated.rb", 7)
end

def locks(door)
  here
  door.synchronize { raise "it is mine" }
end

def pops(queue)
  here
  queue.pop
end

def selects(reads)
  here
  IO.select([reads])
end

def resumes
  inner = Fiber.new do
    [1].each { |_| pops(Queue.new) }
  end
  inner.resume
end

def enumerates
  numbers = Enumerator.new { |to| to << pops(Queue.new) }
  numbers.next
end

def deep(levels)
  levels.zero? ? selects(READS) : deep(levels - 1)
end

ANONYMOUS = Class.new do
  def anonymous
    pops(Queue.new)
  end
end

HELD = Mutex.new.tap(&:lock)
READS, WRITES = IO.pipe
threads = [
  Thread.current,
  Thread.new { locks(HELD) },
  Thread.new { resumes },
  Thread.new { enumerates },
  Thread.new { deep(300) },
  Thread.new { ANONYMOUS.new.anonymous },
  Thread.new { Module.new { pops(Queue.new) } },
]

def stacks(threads)
  threads.each do |thread|
    puts thread[:pthread]
    thread.backtrace_locations.each { |at| puts "#{at.label}\t#{at.base_label}\t#{at.path}" }
    puts
  end
  puts "done"
  $stdout.flush
end

Thread.new do
  threads.size.times { WAITING.pop }
  Thread.pass until threads.all? { |thread| thread.status == "sleep" }
  stacks(threads)
end
evaluates

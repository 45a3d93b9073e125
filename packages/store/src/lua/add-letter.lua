-- KEYS letters lettersByTime
-- ARGV
--   member
--   letter  JSON
--   keptMs  how long letters are kept
--   most    how many a cell keeps

-- include letters

keep(letter, keptMs, tonumber(most))

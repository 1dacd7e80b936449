"""Scripts that run in the server: each is atomic, and sees one state of the topic."""

from __future__ import annotations

from typing import Final

BOUNDS: Final = """
-- Bounds of a stream: last id, first id or false, whether entries were removed.
local function bounds(key)
  if redis.call('EXISTS', key) == 0 then
    return {'0-0', false, 0}
  end
  local info = redis.call('XINFO', 'STREAM', key)
  local found = {}
  for i = 1, #info, 2 do
    found[info[i]] = info[i + 1]
  end
  local first = found['first-entry'] and found['first-entry'][1] or false
  local removed = found['entries-added'] > found['length'] and 1 or 0
  return {found['last-generated-id'], first, removed}
end
"""

READ: Final = (
    BOUNDS
    + """
-- KEYS: topic, stream. ARGV: first id, most rows, most bytes.
-- Returns the incarnation, the bounds, and entries at or after the id.
local most, size = tonumber(ARGV[2]), tonumber(ARGV[3])
local rows, at = {}, ARGV[1]
while #rows < most and size > 0 do
  local count = math.min(64, most - #rows)
  local part = redis.call('XRANGE', KEYS[2], at, '+', 'COUNT', count)
  for _, entry in ipairs(part) do
    rows[#rows + 1] = entry
    for _, text in ipairs(entry[2]) do
      size = size - #text
    end
  end
  if #part < count then
    break
  end
  at = '(' .. part[#part][1]
end
return {redis.call('HGET', KEYS[1], 'incarnation'), bounds(KEYS[2]), rows}
"""
)

PARTITIONS: Final = (
    BOUNDS
    + """
-- KEYS: topic. ARGV: the key of a stream up to its number.
-- Returns the incarnation, and the bounds of all partitions.
local count = redis.call('HGET', KEYS[1], 'partitions')
local found = {}
for partition = 0, (tonumber(count) or 0) - 1 do
  found[#found + 1] = bounds(ARGV[1] .. partition)
end
return {redis.call('HGET', KEYS[1], 'incarnation'), found}
"""
)

TRIM: Final = """
-- KEYS: topic, stream. ARGV: incarnation or '', first id that stays.
local incarnation = redis.call('HGET', KEYS[1], 'incarnation') or ''
if ARGV[1] ~= '' and ARGV[1] ~= incarnation then
  return 0
end
if redis.call('EXISTS', KEYS[2]) == 0 then
  return 0
end
return redis.call('XTRIM', KEYS[2], 'MINID', '=', ARGV[2])
"""

CLAIM: Final = """
-- KEYS: topic, writers. ARGV: writer, instance.
-- Returns 1 and what is remembered; 0 where there is no topic.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {0}
end
redis.call('HSET', KEYS[2], 'instance ' .. ARGV[1], ARGV[2])
return {1, redis.call('HGET', KEYS[2], 'record ' .. ARGV[1])}
"""

COMMIT: Final = (
    BOUNDS
    + """
-- KEYS: topic, writers, then for each staged list the list and its stream.
-- ARGV: writer or '', epoch, instance, whether it has claimed, record, then the rows of
-- each list. Returns 'committed', or 'held' and the record, or what is wrong.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'no topic'}
end
local writer, epoch, instance = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if writer ~= '' then
  local last = redis.call('HGET', KEYS[2], 'epoch ' .. writer)
  if last and tonumber(last) >= epoch then
    for i = 3, #KEYS, 2 do
      redis.call('DEL', KEYS[i])
    end
    return {'held', redis.call('HGET', KEYS[2], 'record ' .. writer)}
  end
  local claimed = redis.call('HGET', KEYS[2], 'instance ' .. writer)
  if ARGV[4] == '1' and claimed ~= instance then
    return {'fenced'}
  end
end
-- Everything is checked before the first write: a script that fails is not undone.
local left = {}
for i = 3, #KEYS, 2 do
  local stream, rows = KEYS[i + 1], tonumber(ARGV[6 + (i - 3) / 2])
  local high, low = string.match(bounds(stream)[1], '(%d+)-(%d+)')
  -- Up to the offset 2^63 - 2. Where it is much, it is rounded.
  local space = (2199023255551 - tonumber(high)) * 4194304 + 4194302 - tonumber(low)
  left[stream] = (left[stream] or space) - rows
  if left[stream] < 0 then
    return {'full'}
  end
  if redis.call('LLEN', KEYS[i]) ~= 2 * rows then
    return {'not staged'}
  end
end
local time = redis.call('TIME')
local stored = time[1] .. string.format('%06d', time[2])
for i = 3, #KEYS, 2 do
  local list, stream = KEYS[i], KEYS[i + 1]
  local high, low = string.match(bounds(stream)[1], '(%d+)-(%d+)')
  high, low = tonumber(high), tonumber(low)
  local length = redis.call('LLEN', list)
  for at = 0, length - 1, 1000 do
    local part = redis.call('LRANGE', list, at, at + 999)
    for j = 1, #part, 2 do
      low = low + 1
      if low >= 4194304 then
        high, low = high + 1, 0
      end
      local id = string.format('%.0f-%.0f', high, low)
      local fields = {'stored', stored}
      for k, name in ipairs({'value', 'key'}) do
        local text = part[j + k - 1]
        if string.sub(text, 1, 1) == '+' then
          fields[#fields + 1] = name
          fields[#fields + 1] = string.sub(text, 2)
        end
      end
      redis.call('XADD', stream, id, unpack(fields))
    end
  end
  redis.call('DEL', list)
end
if writer ~= '' then
  redis.call('HSET', KEYS[2], 'epoch ' .. writer, ARGV[2],
    'instance ' .. writer, instance, 'record ' .. writer, ARGV[5])
end
return {'committed'}
"""
)

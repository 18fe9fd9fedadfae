-- Post-dissector for RoCEv2: what Wireshark's dissector of InfiniBand does not follow.
--
-- It adds the protocol "roce" below each packet, with fields to filter, colour and plot by:
--
--   roce.conversation     both queue pair numbers and addresses, the same for both directions
--   roce.stream           number of the conversation in the file, from 0
--   roce.response_in      request: number of the frame that acknowledges it
--   roce.response_to      response: number of the frame with the newest request that it acknowledges
--   roce.latency          response: time since that request, in seconds
--   roce.retransmission_of  request: number of the frame in which this PSN was sent first
--   roce.retransmission.gap retransmission: time since that frame, in seconds
--   roce.message          request: number of its message in its direction, from 1
--   roce.message.length   LAST or ONLY: bytes of the whole message
--   roce.outstanding      request or response: bytes of requests that are not acknowledged after it
--   roce.nak              NAK: its name
--   roce.credits          ACK: number of messages that the responder accepts, unless it counts none
--   roce.cm.message       connection manager: name of the message
--   roce.cm.transaction   its transaction ID
--   roce.cm.conversation  number of its conversation in the file, from 1
--   roce.cm.response_to   number of the frame with the message that it answers
--   roce.cm.latency       time since that message, in seconds
--   roce.cm.retransmission_of  number of the frame with the first copy of the message
--   roce.cm.reason        REJ and SIDR_REP: the reason in words
--   roce.icrc.status      good, bad, or not captured
--
-- Install: copy this file into the folder of personal Lua plugins (Help > About > Folders), or
-- tshark -X lua_script:roce.lua. docs/guides/wireshark.md has filters, colours and graphs.

local roce = Proto("roce", "RoCEv2 conversations")

local f = {
    conversation = ProtoField.string("roce.conversation", "Conversation"),
    stream = ProtoField.uint32("roce.stream", "Conversation number"),
    response_in = ProtoField.framenum("roce.response_in", "Acknowledged in", base.NONE, frametype.ACK),
    response_to = ProtoField.framenum("roce.response_to", "Response to", base.NONE, frametype.REQUEST),
    latency = ProtoField.double("roce.latency", "Latency in seconds"),
    retransmission_of = ProtoField.framenum("roce.retransmission_of", "Retransmission of", base.NONE,
        frametype.RETRANS_PREV),
    gap = ProtoField.double("roce.retransmission.gap", "Time since first transmission in seconds"),
    message = ProtoField.uint32("roce.message", "Message number"),
    length = ProtoField.uint32("roce.message.length", "Message length in bytes"),
    outstanding = ProtoField.uint32("roce.outstanding", "Outstanding bytes"),
    nak = ProtoField.string("roce.nak", "NAK"),
    credits = ProtoField.uint32("roce.credits", "Credits in messages"),
    cm_message = ProtoField.string("roce.cm.message", "Connection manager"),
    cm_transaction = ProtoField.uint64("roce.cm.transaction", "Transaction ID", base.HEX),
    cm_conversation = ProtoField.uint32("roce.cm.conversation", "Conversation of connection managers"),
    cm_response_to = ProtoField.framenum("roce.cm.response_to", "Answers the message in", base.NONE,
        frametype.REQUEST),
    cm_latency = ProtoField.double("roce.cm.latency", "Time since that message in seconds"),
    cm_retransmission_of = ProtoField.framenum("roce.cm.retransmission_of", "Retransmission of the message in",
        base.NONE, frametype.RETRANS_PREV),
    cm_reason = ProtoField.string("roce.cm.reason", "Reason"),
    icrc = ProtoField.string("roce.icrc.status", "ICRC status"),
}
local fields = {
    f.conversation, f.stream, f.response_in, f.response_to, f.latency, f.retransmission_of, f.gap,
    f.message, f.length, f.outstanding, f.nak, f.credits, f.cm_message, f.cm_transaction, f.cm_conversation,
    f.cm_response_to, f.cm_latency, f.cm_retransmission_of, f.cm_reason, f.icrc,
}
roce.fields = fields

local expert_retransmission = ProtoExpert.new("roce.expert.retransmission", "Retransmission",
    expert.group.SEQUENCE, expert.severity.NOTE)
local expert_nak = ProtoExpert.new("roce.expert.nak", "NAK", expert.group.RESPONSE_CODE,
    expert.severity.WARN)
local expert_icrc = ProtoExpert.new("roce.expert.icrc", "Wrong ICRC", expert.group.CHECKSUM,
    expert.severity.ERROR)
local expert_reject = ProtoExpert.new("roce.expert.reject", "Rejected connection", expert.group.RESPONSE_CODE,
    expert.severity.WARN)
roce.experts = { expert_retransmission, expert_nak, expert_icrc, expert_reject }

roce.prefs.check_icrc = Pref.bool("Check the ICRC of every packet", false,
    "Wireshark checks the packet that it shows, and all if a filter or column has the field. tshark -V and -T check " ..
    "only with this: it takes most of the time.")

local ROCE_PORT = 4791
local UDP = 17
local IPV6_LEN, UDP_LEN, BTH_LEN, ICRC_LEN = 40, 8, 12, 4
local PSN_MASK = 0xffffff

-- Operations of the lower five bits of an opcode.
local OPERATIONS = {
    [0x00] = "send", [0x01] = "send", [0x02] = "send", [0x03] = "send", [0x04] = "send", [0x05] = "send",
    [0x06] = "write", [0x07] = "write", [0x08] = "write", [0x09] = "write", [0x0a] = "write", [0x0b] = "write",
    [0x0c] = "read", [0x0d] = "response", [0x0e] = "response", [0x0f] = "response", [0x10] = "response",
    [0x11] = "ack", [0x12] = "atomic_ack", [0x13] = "atomic", [0x14] = "atomic",
    [0x16] = "send", [0x17] = "send", [0x1c] = "flush", [0x1d] = "atomic_write",
}

local RESPONSES = { response = true, ack = true, atomic_ack = true }

-- Opcodes that begin, and that end a message.
local STARTS = { [0x00] = true, [0x04] = true, [0x05] = true, [0x06] = true, [0x0a] = true, [0x0b] = true,
    [0x0c] = true, [0x13] = true, [0x14] = true, [0x17] = true, [0x1c] = true, [0x1d] = true }
local ENDS = { [0x02] = true, [0x03] = true, [0x04] = true, [0x05] = true, [0x08] = true, [0x09] = true,
    [0x0a] = true, [0x0b] = true, [0x0c] = true, [0x13] = true, [0x14] = true, [0x16] = true, [0x17] = true,
    [0x1c] = true, [0x1d] = true }

-- Bytes of extension headers of requests.
local EXTENSIONS = { [0x03] = 4, [0x05] = 4, [0x06] = 16, [0x09] = 4, [0x0a] = 16, [0x0b] = 20, [0x0c] = 16,
    [0x13] = 28, [0x14] = 28, [0x16] = 4, [0x17] = 4, [0x1c] = 20, [0x1d] = 24 }

-- Requests of XRC have one more header.
local XRC, XRCETH_LEN = 5, 4

local NAKS = { [0] = "PSN sequence error", [1] = "invalid request", [2] = "remote access error",
    [3] = "remote operational error", [4] = "invalid RD request" }

-- CRC-32 of IEEE 802.3, a byte at a time.
local CRC_TABLE = {}
for byte = 0, 255 do
    local crc = byte
    for _ = 1, 8 do
        local low = bit32.band(crc, 1)
        crc = bit32.rshift(crc, 1)
        if low == 1 then crc = bit32.bxor(crc, 0xedb88320) end
    end
    CRC_TABLE[byte] = crc
end

local function crc_of(crc, bytes)
    local band, bxor, rshift = bit32.band, bit32.bxor, bit32.rshift
    for at = 1, #bytes do
        crc = bxor(rshift(crc, 8), CRC_TABLE[band(bxor(crc, bytes:byte(at)), 0xff)])
    end
    return crc
end

local ONES = string.rep("\255", 8)

-- Returns whether the ICRC holds: over eight bytes of ones, the IP header, the UDP header and the packet, with
-- ones in place of every field that changes on the way.
local function icrc_holds(tvb, ip_at, ip_len, udp_at, len)
    local raw = tvb:raw(ip_at, udp_at + UDP_LEN + len - ip_at)
    local is_v4 = bit32.rshift(raw:byte(1), 4) == 4
    local header
    if is_v4 then
        -- TOS, TTL and checksum.
        header = raw:sub(1, 1) .. "\255" .. raw:sub(3, 8) .. "\255" .. raw:sub(10, 10) .. "\255\255" ..
            raw:sub(13, ip_len)
    else
        -- Traffic class, flow label and hop limit.
        header = string.char(bit32.bor(raw:byte(1), 0x0f)) .. "\255\255\255" .. raw:sub(5, 7) .. "\255" ..
            raw:sub(9, ip_len)
    end
    local udp = raw:sub(ip_len + 1, ip_len + 6) .. "\255\255"
    local bth_at = ip_len + UDP_LEN
    -- The byte with FECN and BECN.
    local packet = raw:sub(bth_at + 1, bth_at + 4) .. "\255" .. raw:sub(bth_at + 6, #raw - ICRC_LEN)
    local crc = crc_of(0xffffffff, ONES .. header .. udp .. packet)
    crc = bit32.bxor(crc, 0xffffffff)
    local b0, b1, b2, b3 = raw:byte(#raw - 3, #raw)
    return crc == b0 + b1 * 0x100 + b2 * 0x10000 + b3 * 0x1000000
end

-- Returns the verdict on an ICRC. The preference says when it is computed.
local function icrc_status(tvb, whole)
    local is_whole = tvb:len() >= whole.at + whole.len and whole.len >= BTH_LEN + ICRC_LEN
    if not is_whole then return "not captured" end
    local ip_len = whole.udp_at - whole.ip_at
    return icrc_holds(tvb, whole.ip_at, ip_len, whole.udp_at, whole.len) and "good" or "bad"
end

-- Results of a frame: names of their fields, in the order of the tree.
local SHOWN = {
    "response_in", "response_to", "latency", "retransmission_of", "gap", "message", "length", "outstanding", "nak",
    "credits", "cm_message", "cm_transaction", "cm_conversation", "cm_response_to", "cm_latency",
    "cm_retransmission_of", "cm_reason",
}

-- State of the first pass over the file. Results are stored by frame, because Wireshark shows frames in any order: one
-- table for each kind of result, because a table for each frame takes most of the time.
local state

-- Numbers of requests of a direction are those of its slots, which are used again after so many.
local MAX_REQUESTS = 8192

local function reset()
    state = {
        between = {},    -- directions by source and destination, and below that by queue pair
        stream_count = 0,
        managed = {},    -- conversations of connection managers, by "source>destination/ID" of the active side
        managed_count = 0,
        directions = {}, -- by frame; so are the next
        icrc = {},
    }
    for _, name in ipairs(SHOWN) do state[name] = {} end
end
reset()

-- Whether to check every ICRC: a look at the preferences takes as long as a small packet.
local checks_icrc = false

-- A changed preference means that the file is dissected again.
function roce.init()
    reset()
    checks_icrc = roce.prefs.check_icrc
end

-- Returns whether PSN a comes before b.
local function is_before(a, b)
    return bit32.band(a - b, PSN_MASK) >= 0x800000
end

local function direction_of(hosts, qp)
    local between = state.between[hosts]
    if not between then
        between = {}
        state.between[hosts] = between
    end
    local direction = between[qp]
    if not direction then
        local half = #hosts / 2
        direction = { source = hosts:sub(1, half), destination = hosts:sub(half + 1), qp = qp,
            -- Number of the newest request with a PSN.
            sent = {},
            -- By slot of a request.
            psns = {}, frames = {}, times = {}, payloads = {}, again = {}, again_times = {},
            first = 1, last = 0, unacknowledged = 1, outstanding = 0, messages = 0, length = 0 }
        between[qp] = direction
    end
    return direction
end

-- Forgets the oldest request of a direction.
local function forget(direction)
    local first = direction.first
    local slot = first % MAX_REQUESTS
    if direction.unacknowledged == first then
        direction.unacknowledged = first + 1
        direction.outstanding = direction.outstanding - direction.payloads[slot]
    end
    local psn = direction.psns[slot]
    if direction.sent[psn] == first then direction.sent[psn] = nil end
    direction.first = first + 1
end

-- Returns the direction whose requests a response of `direction` answers: the one that it was joined with, or the
-- one between the same hosts that has sent this PSN most recently.
local function asked(direction, psn)
    if direction.other then return direction.other end
    local found, newest
    for _, other in pairs(state.between[direction.destination .. direction.source] or {}) do
        local number = other.sent[psn]
        if other ~= direction and number and (not other.other or other.other == direction) then
            local frame = other.frames[number % MAX_REQUESTS]
            if not found or frame > newest then found, newest = other, frame end
        end
    end
    if found then
        direction.other, found.other = found, direction
    end
    return found
end

-- Returns the text of an address of four or sixteen bytes.
local texts_of_addresses = {}
local function address_of(bytes)
    local text = texts_of_addresses[bytes]
    if not text then
        local range = ByteArray.new(bytes, true):tvb("address"):range(0, #bytes)
        text = tostring(#bytes == 4 and range:ipv4() or range:ipv6())
        texts_of_addresses[bytes] = text
    end
    return text
end

-- Returns the name of a conversation and its number. Both directions have the same once they are joined.
local function conversation_of(direction)
    local other = direction.other
    local stream = direction.stream or (other and other.stream)
    if not stream then
        stream = state.stream_count
        state.stream_count = stream + 1
    end
    direction.stream = stream
    if other then other.stream = stream end
    if not direction.name or direction.named_other ~= other then
        local one = string.format("%s qp 0x%06x", address_of(direction.destination), direction.qp)
        local two = address_of(direction.source) .. " qp " .. (other and string.format("0x%06x", other.qp) or "?")
        direction.name = one < two and one .. " <> " .. two or two .. " <> " .. one
        direction.named_other = other
    end
    return direction.name, stream
end

-- Follows a request.
local function request(direction, frame, time, psn, code, payload)
    local number = direction.sent[psn]
    if number then
        local slot = number % MAX_REQUESTS
        local first = direction.frames[slot]
        state.retransmission_of[frame] = first
        state.gap[frame] = time - direction.times[slot]
        state.message[frame] = state.message[first]
        direction.again[slot], direction.again_times[slot] = frame, time
    else
        if STARTS[code] then
            direction.messages = direction.messages + 1
            direction.length = 0
        end
        direction.length = direction.length + payload
        number = direction.last + 1
        direction.last = number
        direction.sent[psn] = number
        direction.outstanding = direction.outstanding + payload
        state.message[frame] = direction.messages
        if ENDS[code] then state.length[frame] = direction.length end
        if number - direction.first >= MAX_REQUESTS then forget(direction) end
        local slot = number % MAX_REQUESTS
        direction.psns[slot], direction.frames[slot], direction.times[slot] = psn, frame, time
        direction.payloads[slot], direction.again[slot] = payload, false
    end
    state.outstanding[frame] = direction.outstanding
end

-- Follows a response: it acknowledges every request up to its PSN, and a NAK those before it.
local function response(direction, frame, time, psn, is_nak)
    local other = asked(direction, psn)
    if not other then return end
    local number = other.sent[psn]
    if number then
        local slot = number % MAX_REQUESTS
        local again = other.again[slot]
        state.response_to[frame] = again or other.frames[slot]
        state.latency[frame] = time - (again and other.again_times[slot] or other.times[slot])
    end
    local next, last, outstanding = other.unacknowledged, other.last, other.outstanding
    local psns, frames, payloads, response_in = other.psns, other.frames, other.payloads, state.response_in
    while next <= last do
        local slot = next % MAX_REQUESTS
        local sent = psns[slot]
        if not (sent == psn and not is_nak or is_before(sent, psn)) then break end
        response_in[frames[slot]] = frame
        outstanding = outstanding - payloads[slot]
        next = next + 1
    end
    other.unacknowledged, other.outstanding = next, outstanding
    state.outstanding[frame] = outstanding
end

-- Returns the number of messages for which an ACK has credits; nil if the responder counts none.
local function credits_of(syndrome)
    local code = bit32.band(syndrome, 0x1f)
    if code == 31 then return nil end
    if code < 2 then return code end
    -- 2, 3, 4, 6, 8, 12 and so on.
    if code % 2 == 0 then return 2 ^ (code / 2) end
    return 3 * 2 ^ ((code - 3) / 2)
end

-- Messages of the connection manager by their attribute ID, with the message that each answers.
local MESSAGES = {
    [0x10] = { name = "REQ", begins = true }, [0x11] = { name = "MRA", answers = "named" },
    [0x12] = { name = "REJ", answers = "named" }, [0x13] = { name = "REP", answers = "request" },
    [0x14] = { name = "RTU", answers = "reply" }, [0x15] = { name = "DREQ" },
    [0x16] = { name = "DREP", answers = "DREQ" }, [0x17] = { name = "SIDR_REQ", begins = true },
    [0x18] = { name = "SIDR_REP", answers = "request" },
}

local REASONS = { [1] = "no QP available", [3] = "no resources available", [4] = "timeout",
    [5] = "unsupported request", [6] = "invalid communication ID", [8] = "invalid service ID",
    [9] = "invalid transport service type", [10] = "stale connection", [12] = "primary remote GID rejected",
    [26] = "path MTU rejected", [28] = "consumer reject", [31] = "unsupported class version",
    [35] = "vendor option not supported" }
local STATUSES = { [1] = "service ID not supported", [2] = "rejected by the service", [3] = "no QP available",
    [4] = "redirected", [5] = "unsupported version" }

-- Offset of the management datagram behind the BTH, and of the message in it.
local DETH_LEN, MAD_LEN = 8, 24
local UD_SEND_ONLY, GSI, CM_CLASS = 0x64, 1, 7

-- Follows a message of the connection manager. Another datagram has no results.
local function manage(raw, frame, time, whole)
    local mad_at = whole.at + BTH_LEN + DETH_LEN
    local body_at = mad_at + MAD_LEN
    if #raw < body_at + 12 or raw:byte(mad_at + 2) ~= CM_CLASS then return end
    local kind = MESSAGES[raw:byte(mad_at + 17) * 256 + raw:byte(mad_at + 18)]
    if not kind then return end
    local id, remote = raw:sub(body_at + 1, body_at + 4), raw:sub(body_at + 5, body_at + 8)
    local transaction = raw:sub(mad_at + 9, mad_at + 16)
    state.cm_message[frame] = kind.name
    state.cm_transaction[frame] = UInt64.decode(transaction, false)
    local half = #whole.hosts / 2
    local from, to = whole.hosts:sub(1, half), whole.hosts:sub(half + 1)
    local copy = { frame = frame, time = time }
    local conversation, is_active
    if kind.begins then
        conversation, is_active = state.managed[from .. to .. id], true
        if conversation and conversation.transaction ~= transaction then conversation = nil end
        if not conversation then
            state.managed_count = state.managed_count + 1
            conversation = { number = state.managed_count, transaction = transaction, sent = {} }
            state.managed[from .. to .. id] = conversation
        end
    else
        if kind.name == "SIDR_REP" then remote = id end
        conversation = state.managed[to .. from .. remote]
        if not conversation then conversation, is_active = state.managed[from .. to .. id], true end
        if not conversation then return end
    end
    state.cm_conversation[frame] = conversation.number
    local sent = conversation.sent
    -- Both sides may send DREQ.
    local key = kind.name .. (is_active and "" or " of the passive side")
    if kind.begins then key = "request" elseif kind.name == "REP" then key = "reply" end
    local answers = kind.answers
    if answers == "named" then
        local named = bit32.rshift(raw:byte(body_at + 9), 6)
        answers = named == 0 and "request" or named == 1 and "reply" or nil
    elseif answers == "DREQ" then
        answers = is_active and "DREQ of the passive side" or "DREQ"
    end
    if sent[key] then
        state.cm_retransmission_of[frame] = sent[key].frame
    else
        sent[key] = copy
    end
    local answered = answers and sent[answers]
    if answered then
        state.cm_response_to[frame] = answered.frame
        state.cm_latency[frame] = copy.time - answered.time
    end
    if kind.name == "REJ" then
        local reason = raw:byte(body_at + 11) * 256 + raw:byte(body_at + 12)
        state.cm_reason[frame] = REASONS[reason] or ("reason " .. reason)
    elseif kind.name == "SIDR_REP" and raw:byte(body_at + 5) ~= 0 then
        local status = raw:byte(body_at + 5)
        state.cm_reason[frame] = STATUSES[status] or ("status " .. status)
    end
end

-- Returns the name of a NAK, or the number of credits of an ACK.
local function verdict_of(syndrome)
    local kind = bit32.band(bit32.rshift(syndrome, 5), 3)
    if kind == 0 then return nil, credits_of(syndrome) end
    if kind == 1 then return "receiver not ready" end
    if kind == 3 then return NAKS[bit32.band(syndrome, 0x1f)] or "reserved code" end
end

-- Follows one packet in the first pass; returns its direction.
local function follow(raw, frame, time, whole)
    local opcode, flags, _, _, _, q1, q2, q3, _, p1, p2, p3, syndrome = raw:byte(whole.at + 1, whole.at + 13)
    local code = opcode % 0x20
    local transport = (opcode - code) / 0x20
    local psn = p1 * 0x10000 + p2 * 0x100 + p3
    local direction = direction_of(whole.hosts, q1 * 0x10000 + q2 * 0x100 + q3)
    local operation = OPERATIONS[code]
    -- RC and XRC are acknowledged; UC and UD are not.
    if operation and (transport == 0 or transport == XRC) then
        if RESPONSES[operation] then
            local nak
            if operation == "ack" then
                nak, state.credits[frame] = verdict_of(syndrome)
                state.nak[frame] = nak
            end
            response(direction, frame, time, psn, nak ~= nil)
        else
            local extension = (EXTENSIONS[code] or 0) + (transport == XRC and XRCETH_LEN or 0)
            local pad = bit32.extract(flags, 4, 2)
            local payload = math.max(0, whole.len - BTH_LEN - extension - ICRC_LEN - pad)
            request(direction, frame, time, psn, code, payload)
        end
    elseif opcode == UD_SEND_ONLY and direction.qp == GSI then
        manage(raw, frame, time, whole)
    end
    return direction
end

-- Fields that filters, columns or plots refer to, whether there are any, and the frame that was shown last.
local referenced, is_any_referenced, last_shown, was_visited = {}, false, math.huge, false

-- Updates which fields are referred to. A new filter or column means a new pass over the frames, which begins before the
-- last frame; to ask for each field of each frame would take as long as the rest. A live capture alternates between
-- new frames and those in the list.
local function update_referenced(tree, pinfo, frame)
    local is_visited = pinfo.visited
    if frame <= last_shown or is_visited ~= was_visited then
        is_any_referenced = false
        for _, field in ipairs(fields) do
            referenced[field] = tree:referenced(field)
            is_any_referenced = is_any_referenced or referenced[field]
        end
    end
    last_shown, was_visited = frame, is_visited
end

-- Adds the results of a packet to the tree. A field that nothing shows, filters or plots is left out.
local function show(tree, tvb, pinfo, frame, direction, whole)
    local visible = tree.visible
    if not visible then update_referenced(tree, pinfo, frame) end
    local branch = visible and tree:add(roce, tvb()) or tree:add(roce)
    if visible or referenced[f.conversation] or referenced[f.stream] then
        local name, stream = conversation_of(direction)
        branch:append_text(", " .. name)
        if visible or referenced[f.conversation] then branch:add(f.conversation, name) end
        if visible or referenced[f.stream] then branch:add(f.stream, stream) end
    end
    if visible or is_any_referenced then
        for _, name in ipairs(SHOWN) do
            local value = state[name][frame]
            if value ~= nil and (visible or referenced[f[name]]) then branch:add(f[name], value) end
        end
    end
    local reason, nak = state.cm_reason[frame], state.nak[frame]
    if reason then branch:add_proto_expert_info(expert_reject, "Rejected: " .. reason) end
    if state.retransmission_of[frame] then branch:add_proto_expert_info(expert_retransmission) end
    if nak then branch:add_proto_expert_info(expert_nak, "NAK: " .. nak) end
    local is_wanted = visible and gui_enabled() or not visible and referenced[f.icrc]
    if is_wanted or checks_icrc then
        local verdict = state.icrc[frame] or icrc_status(tvb, whole)
        state.icrc[frame] = verdict
        branch:add(f.icrc, verdict)
        if verdict == "bad" then branch:add_proto_expert_info(expert_icrc) end
    end
end

-- Offsets at which an IP header may begin: behind Ethernet with up to two VLAN tags, Linux cooked captures of either
-- version, loopback, and at once.
local IP_OFFSETS = { 14, 18, 22, 16, 20, 4, 0 }

-- The packet that was found last.
local found = {}

-- Returns where IP header, UDP header and packet begin, the length of the packet, and the addresses of source and
-- destination; nil for another frame. The next call overwrites the result. Fields of
-- other dissectors would tell too, but the first pass over a file has none. `raw` is the beginning of the frame.
local function find(raw)
    local byte, size = string.byte, #raw
    for at = 1, #IP_OFFSETS do
        local ip_at = IP_OFFSETS[at]
        local first = byte(raw, ip_at + 1)
        local udp_at, hosts_at, hosts_end
        if not first then
            return nil
        elseif first >= 0x45 and first < 0x50 and byte(raw, ip_at + 10) == UDP then
            udp_at = ip_at + 4 * (first - 0x40)
            hosts_at, hosts_end = ip_at + 13, ip_at + 20
        elseif first >= 0x60 and first < 0x70 and byte(raw, ip_at + 7) == UDP then
            udp_at = ip_at + IPV6_LEN
            hosts_at, hosts_end = ip_at + 9, ip_at + 40
        end
        if udp_at and size >= udp_at + UDP_LEN + BTH_LEN + 4 then
            local p1, p2, l1, l2 = byte(raw, udp_at + 3, udp_at + 6)
            if p1 * 256 + p2 == ROCE_PORT then
                found.ip_at, found.udp_at, found.at = ip_at, udp_at, udp_at + UDP_LEN
                found.len, found.hosts = l1 * 256 + l2 - UDP_LEN, string.sub(raw, hosts_at, hosts_end)
                return found
            end
        end
    end
    return nil
end

-- Bytes of a frame that hold every header up to the first word behind the BTH.
local MAX_HEADERS = 160

function roce.dissector(tvb, pinfo, tree)
    local raw = tvb:raw(0, math.min(tvb:len(), MAX_HEADERS))
    local whole = find(raw)
    if not whole then return end
    local frame = pinfo.number
    local direction = state.directions[frame]
    if not direction then
        direction = follow(raw, frame, pinfo.rel_ts, whole)
        state.directions[frame] = direction
    end
    show(tree, tvb, pinfo, frame, direction, whole)
end

register_postdissector(roce)

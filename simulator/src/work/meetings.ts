import type { Platform } from "../platform.ts";
import type { SimSubscriptions } from "./subscriptions.ts";
import { type WorkWorld, actorOf } from "./world.ts";
import type { DeliveryReport } from "../delivery.ts";
import type { ApiRoute, ApiCallContext } from "../api-route.ts";
import {
  randomHex,
  success,
  type JsonObject,
  isJsonObject,
  PlatformError,
  pageOf,
} from "../open-api.ts";

// Meetings that were held, their notes, and minutes of recordings ("Video conferencing overview", "Minutes overview").

interface SimMeeting {
  meetingId: string;
  topic: string;
  organizer: string;
  participants: readonly string[];
  /** Epoch ms. */
  start: number;
  end: number;
  /** Notes that the platform made: participants may read them. */
  noteId?: string;
  /** Documents of the notes: the summary, and every word. */
  noteDocuments: { summary: string; verbatim?: string };
}

interface SimMinutes {
  token: string;
  title: string;
  owner: string;
  participants: readonly string[];
  createdAt: number;
  summary: string;
  chapters: readonly { title: string; summary: string; startMs: number }[];
  todos: readonly { content: string; assignees: readonly string[] }[];
  /** Until when the platform still works at them, epoch ms. */
  readyAt: number;
  deleted: boolean;
}

export interface MeetingControls {
  readonly meetings: ReadonlyMap<string, SimMeeting>;
  readonly minutes: ReadonlyMap<string, SimMinutes>;
  addMeeting(
    meeting: Pick<SimMeeting, "topic" | "organizer" | "participants" | "start" | "end"> & {
      /** Documents that hold its notes; the caller shares them with the participants. */
      notes?: SimMeeting["noteDocuments"];
    },
  ): SimMeeting;
  /** A meeting of half an hour has just ended, and its minutes are ready. */
  holdMeeting(
    held: Pick<SimMeeting, "topic" | "organizer" | "participants"> &
      Pick<SimMinutes, "summary" | "todos">,
  ): Promise<DeliveryReport[]>;
  /** A meeting ends now; apps whom its people have subscribed get the event. */
  endMeeting(meetingId: string): Promise<DeliveryReport[]>;
  /** Minutes are ready now; apps whom their people have subscribed get the event. `meetingId`: what they are of. */
  finishMinutes(token: string, meetingId?: string): Promise<DeliveryReport[]>;
  addMinutes(
    minutes: Pick<SimMinutes, "title" | "owner" | "participants" | "summary"> & Partial<SimMinutes>,
  ): SimMinutes;
}

const maxFound = 150;
const minutesReading = [
  "minutes:minutes.artifacts:read",
  "minutes:minutes:readonly",
  "minutes:minutes",
];

export class SimMeetings implements MeetingControls {
  readonly meetings = new Map<string, SimMeeting>();
  readonly minutes = new Map<string, SimMinutes>();
  readonly #world: WorkWorld;

  readonly #subscriptions: SimSubscriptions;

  constructor(world: WorkWorld, subscriptions: SimSubscriptions) {
    this.#world = world;
    this.#subscriptions = subscriptions;
  }

  async holdMeeting({
    summary,
    todos,
    ...held
  }: Parameters<MeetingControls["holdMeeting"]>[0]): Promise<DeliveryReport[]> {
    const end = this.#world.clock.now();
    const { meetingId } = this.addMeeting({ ...held, start: end - 1_800_000, end });
    const { topic: title, organizer: owner, participants } = held;
    const { token } = this.addMinutes({ title, owner, participants, summary, todos });
    const ended = await this.endMeeting(meetingId);
    return [...ended, ...(await this.finishMinutes(token, meetingId))];
  }

  async endMeeting(meetingId: string): Promise<DeliveryReport[]> {
    const meeting = this.meetings.get(meetingId);
    if (meeting === undefined) throw new Error(`No meeting ${meetingId}`);
    meeting.end = this.#world.clock.now();
    const { topic, organizer, participants, start, end } = meeting;
    const event = {
      meeting: {
        id: meetingId,
        topic,
        meeting_no: meetingId.slice(-9),
        start_time: secondsOf(start),
        end_time: secondsOf(end),
      },
    };
    const type = "vc.meeting.participant_meeting_ended_v1";
    return await this.#subscriptions.announce(type, [organizer, ...participants], event);
  }

  async finishMinutes(token: string, meetingId?: string): Promise<DeliveryReport[]> {
    const minutes = this.minutes.get(token);
    if (minutes === undefined) throw new Error(`No minutes ${token}`);
    minutes.readyAt = this.#world.clock.now();
    const { owner, participants } = minutes;
    const source = { source_type: "meeting", source_entity_id: meetingId };
    const event = {
      minute_token: token,
      ...(meetingId === undefined ? {} : { minute_source: source }),
    };
    const type = "minutes.minute.generated_v1";
    return await this.#subscriptions.announce(type, [owner, ...participants], event);
  }

  addMeeting({
    notes,
    ...meeting
  }: Pick<SimMeeting, "topic" | "organizer" | "participants" | "start" | "end"> & {
    notes?: SimMeeting["noteDocuments"];
  }): SimMeeting {
    const meetingId = String(7_000_000_000_000_000_000n + BigInt(`0x${randomHex(12)}`));
    const noteId = `note_${randomHex(16)}`;
    const added = {
      meetingId,
      noteDocuments: notes ?? { summary: "" },
      ...meeting,
      ...(notes === undefined ? {} : { noteId }),
    };
    this.meetings.set(meetingId, added);
    return added;
  }

  addMinutes(
    given: Pick<SimMinutes, "title" | "owner" | "participants" | "summary"> & Partial<SimMinutes>,
  ): SimMinutes {
    const now = this.#world.clock.now();
    const token = `obcn${randomHex(20)}`;
    const added = {
      token,
      createdAt: now,
      chapters: [],
      todos: [],
      readyAt: now,
      deleted: false,
      ...given,
    };
    this.minutes.set(token, added);
    return added;
  }

  routes(platform: Platform): ApiRoute[] {
    const limits = { perMinute: 100 };
    return [
      {
        method: "POST",
        path: "/open-apis/vc/v1/meetings/search",
        personScopes: ["vc:meeting.search:read"],
        limits,
        handle: (call) => this.#search(platform, call),
      },
      {
        method: "GET",
        path: "/open-apis/vc/v1/meetings/:meeting_id",
        personScopes: [
          "vc:meeting.meetingevent:read",
          "vc:meeting:readonly",
          "vc:meeting",
          "vc:meeting.search:read",
        ],
        handle: (call) => this.#meeting(platform, call),
      },
      {
        method: "GET",
        path: "/open-apis/vc/v1/notes/:note_id",
        personScopes: ["vc:note:read"],
        handle: (call) => this.#note(call),
      },
      {
        method: "POST",
        path: "/open-apis/minutes/v1/minutes/search",
        personScopes: ["minutes:minutes.search:read"],
        limits,
        handle: (call) => this.#searchMinutes(platform, call),
      },
      {
        method: "GET",
        path: "/open-apis/minutes/v1/minutes/:minute_token",
        personScopes: ["minutes:minutes.basic:read", "minutes:minutes:readonly", "minutes:minutes"],
        limits: { perSecond: 5 },
        handle: (call) => {
          const { token, title, owner, createdAt } = this.#openMinutes(call);
          const url = linkOf(token);
          return success({
            minute: {
              token,
              title,
              owner_id: owner,
              create_time: String(createdAt),
              duration: "0",
              url,
            },
          });
        },
      },
      {
        method: "GET",
        path: "/open-apis/minutes/v1/minutes/:minute_token/artifacts",
        personScopes: minutesReading,
        limits: { perSecond: 5 },
        handle: (call) => this.#artifacts(platform, call),
      },
    ];
  }

  #search(platform: Platform, call: ApiCallContext): JsonObject {
    const filter = isJsonObject(call.body.meeting_filter) ? call.body.meeting_filter : {};
    const who = actorOf(call);
    const found = [...this.meetings.values()].filter(
      (meeting) =>
        attended(meeting, who) &&
        matches(call.body.query, meeting.topic) &&
        within(filter.start_time, meeting.start) &&
        includes(filter.organizer_ids, [meeting.organizer]) &&
        includes(filter.participant_ids, meeting.participants),
    );
    return foundPage(call, found, (meeting) => ({
      id: meeting.meetingId,
      display_info: meeting.topic,
      meta_data: {
        app_link: `https://applink.feishu.cn/client/videochat/detail?meetingId=${meeting.meetingId}`,
        description: `${new Date(meeting.start).toISOString()} ${nameOf(platform, meeting.organizer)}`,
      },
    }));
  }

  #meeting(platform: Platform, call: ApiCallContext): JsonObject {
    const meeting = this.meetings.get(call.params.meeting_id ?? "");
    if (meeting === undefined) {
      throw new PlatformError(121005, "the meeting does not exist", { status: 404 });
    }
    if (!attended(meeting, actorOf(call))) {
      throw new PlatformError(121003, "no permission", { status: 403 });
    }
    const participants = [...new Set([meeting.organizer, ...meeting.participants])];
    return success({
      meeting: {
        id: meeting.meetingId,
        topic: meeting.topic,
        start_time: String(Math.floor(meeting.start / 1_000)),
        end_time: String(Math.floor(meeting.end / 1_000)),
        host_user: { id: meeting.organizer, user_type: 1 },
        participants: participants
          .filter((id) => platform.directory.users.has(id))
          .map((id) => ({ id, user_type: 1 })),
        ...(meeting.noteId === undefined ? {} : { note_id: meeting.noteId }),
      },
    });
  }

  #note(call: ApiCallContext): JsonObject {
    const meeting = [...this.meetings.values()].find(
      ({ noteId }) => noteId === call.params.note_id,
    );
    if (meeting === undefined) {
      throw new PlatformError(121004, "the note does not exist", { status: 404 });
    }
    if (!attended(meeting, actorOf(call))) {
      throw new PlatformError(121003, "no permission", { status: 403 });
    }
    const { summary, verbatim } = meeting.noteDocuments;
    const created = String(Math.floor(meeting.end / 1_000));
    const artifact = (artifact_type: number, doc_token: string) => ({
      artifact_type,
      create_time: created,
      doc_token,
    });
    const artifacts = [
      artifact(1, summary),
      ...(verbatim === undefined ? [] : [artifact(2, verbatim)]),
    ];
    return success({
      note: { creator_id: meeting.organizer, create_time: created, artifacts, references: [] },
    });
  }

  #searchMinutes(platform: Platform, call: ApiCallContext): JsonObject {
    const filter = isJsonObject(call.body.filter) ? call.body.filter : {};
    const who = actorOf(call);
    const found = [...this.minutes.values()].filter(
      (minutes) =>
        !minutes.deleted &&
        mayRead(minutes, who) &&
        matches(call.body.query, minutes.title) &&
        within(filter.create_time, minutes.createdAt) &&
        includes(filter.owner_ids, [minutes.owner]) &&
        includes(filter.participant_ids, minutes.participants),
    );
    return foundPage(call, found, ({ token, title, owner, createdAt }) => ({
      token,
      display_info: title,
      meta_data: {
        app_link: linkOf(token),
        description: `${new Date(createdAt).toISOString()} ${nameOf(platform, owner)}`,
      },
    }));
  }

  #openMinutes(call: ApiCallContext): SimMinutes {
    const minutes = this.minutes.get(call.params.minute_token ?? "");
    if (minutes === undefined) {
      throw new PlatformError(2091002, "the minutes do not exist", { status: 404 });
    }
    if (minutes.deleted) throw new PlatformError(2091004, "the minutes were deleted");
    if (!mayRead(minutes, actorOf(call))) {
      throw new PlatformError(2091005, "permission denied", { status: 403 });
    }
    return minutes;
  }

  #artifacts(platform: Platform, call: ApiCallContext): JsonObject {
    const minutes = this.#openMinutes(call);
    if (minutes.readyAt > this.#world.clock.now()) {
      throw new PlatformError(2091003, "the minutes are not ready");
    }
    return success({
      summary: minutes.summary,
      minute_chapters: minutes.chapters.map(({ title, summary, startMs }) => ({
        title,
        start_ms: String(startMs),
        summary_content: summary,
      })),
      minute_todos: minutes.todos.map(({ content, assignees }) => ({
        content,
        assignees: assignees.map((id) => nameOf(platform, id)),
        is_done: false,
      })),
    });
  }
}

function secondsOf(ms: number): string {
  return String(Math.floor(ms / 1_000));
}

function attended({ organizer, participants }: SimMeeting, who: string): boolean {
  return organizer === who || participants.includes(who);
}

function mayRead({ owner, participants }: SimMinutes, who: string): boolean {
  return owner === who || participants.includes(who);
}

function matches(query: unknown, title: string): boolean {
  return typeof query !== "string" || title.toLowerCase().includes(query.toLowerCase());
}

function includes(wanted: unknown, ids: readonly string[]): boolean {
  return !Array.isArray(wanted) || wanted.length === 0 || ids.some((id) => wanted.includes(id));
}

/** ISO times; an absent end is open. */
function within(range: unknown, at: number): boolean {
  const { start_time: start, end_time: end } = isJsonObject(range) ? range : {};
  return (
    !(typeof start === "string" && at < Date.parse(start)) &&
    !(typeof end === "string" && at > Date.parse(end))
  );
}

/** A search gives 30 a page and 150 in all. */
function foundPage<T>(
  call: ApiCallContext,
  found: readonly T[],
  view: (item: T) => JsonObject,
): JsonObject {
  const { items, ...page } = pageOf(found.toReversed().slice(0, maxFound), call.query, 30);
  return success({ ...page, total: found.length, items: items.map(view) });
}

function nameOf(platform: Platform, openId: string): string {
  return platform.directory.users.get(openId)?.name ?? "";
}

function linkOf(token: string): string {
  return `https://feishu.cn/minutes/${token}`;
}

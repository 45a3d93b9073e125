import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { contentPace } from "./documents/reading.ts";
import { namesOf } from "./people.ts";
import {
  checkedId,
  isRefusal,
  type Platform,
  quoted,
  type Remedies,
  type Settings,
  targetOf,
} from "./platform.ts";
import { Moment, msOf, rangeOf, shownTime, TimeZone } from "./time.ts";
import { workTool } from "./work-tool.ts";

// Meetings that took place, and what was said there.

const meetingRemedies: Remedies = {
  121003: "The person may not see this meeting; people who were there can.",
  121004: "There are no such notes.",
  121005: "There is no such meeting.",
  2091002: "There are no such minutes.",
  2091003: "The platform still works at these minutes; try again in some minutes.",
  2091004: "The minutes were deleted.",
  2091005: "The person may not read these minutes; their owner can share them.",
  2889902: "The person may not read this document; its owner can share it.",
  2889906: "The document was deleted.",
  2889914: "There is no such document.",
};

const maxDays = 92;
const pageSize = 20;
const maxTextCharacters = 20_000;

function findTool(settings: Settings): HandlerTool {
  return workTool(settings, meetingRemedies, {
    name: "find_meetings",
    description:
      "Finds meetings that took place and minutes of recordings, by words of their titles and by time: those that the person organised, attended or may read.",
    title: { zh: "查找会议和妙记", en: "Find meetings and minutes" },
    input: {
      from: Moment("Not before this time."),
      to: Moment("Not after this time; at most 92 days later."),
      time_zone: TimeZone,
      query: Type.Optional(
        Type.String({ minLength: 1, maxLength: 50, description: "Words of the title." }),
      ),
    },
    effect: "pure",
    scopes: ["vc:meeting.search:read", "minutes:minutes.search:read"],
    reach: "reads",
    run: async ({ from, to, query, time_zone: zone }, platform) => {
      rangeOf(from, to, maxDays);
      const time = {
        start_time: new Date(msOf(from)).toISOString(),
        end_time: new Date(msOf(to)).toISOString(),
      };
      const words = query === undefined ? {} : { query };
      const meetings = await platform.read((client, as) =>
        client.vc.v1.meeting.search(
          {
            data: { ...words, meeting_filter: { start_time: time } },
            params: { page_size: pageSize },
          },
          as,
        ),
      );
      const minutes = await platform.read((client, as) =>
        client.minutes.v1.minute.search(
          {
            data: { ...words, filter: { create_time: time } },
            params: { page_size: pageSize, user_id_type: "open_id" },
          },
          as,
        ),
      );
      const lines = [
        ...(meetings.items ?? []).map(({ id, display_info: title, meta_data: meta }) =>
          foundLine("meeting", { id, title, about: meta?.description, link: meta?.app_link, zone }),
        ),
        ...(minutes.items ?? []).map(({ token, display_info: title, meta_data: meta }) =>
          foundLine("minutes", {
            id: token,
            title,
            about: meta?.description,
            link: meta?.app_link,
            zone,
          }),
        ),
      ];
      if (lines.length === 0) {
        return "No meeting and no minutes that the person may see were found in this time.";
      }
      const isMore = meetings.has_more === true || minutes.has_more === true;
      return quoted(
        "meetings",
        lines.join("\n") + (isMore ? "\n[more are left out: ask for a shorter time]" : ""),
      );
    },
  });
}

interface Found {
  id: string | undefined;
  title: string | undefined;
  about: string | undefined;
  link: string | undefined;
  zone: string;
}

function foundLine(
  kind: string,
  { id = "", title = "", about = "", link = "", zone }: Found,
): string {
  const times = about.replaceAll(/\d{4}-\d{2}-\d{2}T[\d:.]+Z/g, (time) =>
    shownTime(Date.parse(time), zone),
  );
  return `- ${kind} ${title} (${times}; ${kind === "meeting" ? `id ${id}` : `token ${id}`}) ${link}`;
}

function readTool(settings: Settings): HandlerTool {
  return workTool(settings, meetingRemedies, {
    name: "read_minutes",
    description:
      "Reads what was said in a meeting: its notes, or the summary, chapters and to-dos of its minutes. Give the id of a meeting, or a link to minutes or their token, as find_meetings gives them.",
    title: { zh: "读会议纪要", en: "Read minutes" },
    summary: { zh: "读会议纪要 {of}", en: "Read the minutes of {of}" },
    input: {
      of: Type.String({
        minLength: 1,
        maxLength: 300,
        description: "Id of a meeting (digits), or link or token of minutes.",
      }),
      time_zone: TimeZone,
    },
    effect: "pure",
    scopes: [
      "vc:meeting.search:read",
      "vc:note:read",
      "minutes:minutes.search:read",
      "minutes:minutes.artifacts:read",
      "docs:document.content:read",
      "contact:user.basic_profile:readonly",
    ],
    reach: "reads",
    run: async ({ of, time_zone: zone }, platform) => {
      if (/^\d{1,30}$/.test(of.trim())) return await readMeeting(platform, of.trim(), zone);
      const { kind, id } = targetOf(of);
      if (kind !== "minutes" && kind !== "unknown") {
        throw new Error(`This is a link to ${kind}, not to minutes.`);
      }
      return quoted(of.trim(), cut(await minutesText(platform, id)));
    },
  });
}

/** Notes first, which all who were there may read; without notes the minutes of the same title and time. */
async function readMeeting(platform: Platform, meetingId: string, zone: string): Promise<string> {
  const { meeting = {} } = await platform.read((client, as) =>
    client.vc.v1.meeting.get(
      {
        params: { with_participants: true, user_id_type: "open_id" },
        path: { meeting_id: meetingId },
      },
      as,
    ),
  );
  const { topic = "", note_id: noteId, participants = [] } = meeting;
  const start = Number(meeting.start_time ?? 0) * 1_000;
  const people = participants.flatMap(({ id }) => id ?? []);
  const nameOf = await namesOf(platform, people);
  const head = `${topic}, ${shownTime(start, zone)}. There: ${people.map(nameOf).join(", ")}.`;
  const texts = noteId === undefined ? [] : await noteTexts(platform, noteId);
  if (texts.length > 0) {
    return quoted(`meeting ${meetingId}`, cut(`${head}\n\n${texts.join("\n\n")}`));
  }
  const token = await minutesOf(platform, topic, start);
  const text =
    token === undefined
      ? "This meeting has neither notes nor minutes that the person may read."
      : await minutesText(platform, token);
  return quoted(`meeting ${meetingId}`, cut(`${head}\n\n${text}`));
}

async function noteTexts(platform: Platform, noteId: string): Promise<string[]> {
  const path = { note_id: checkedId(noteId, "notes") };
  const { note } = await platform.read((client, as) => client.vc.v1.note.get({ path }, as));
  const texts: string[] = [];
  // 1 is the note, 2 every word that was said: the note comes first, and is often enough.
  for (const { doc_token: token } of (note?.artifacts ?? []).filter(
    ({ artifact_type: type }) => type === 1,
  )) {
    const params = {
      doc_token: checkedId(token, "a document"),
      doc_type: "docx" as const,
      content_type: "markdown" as const,
    };
    try {
      const { content = "" } = await platform.read(
        (client, as) => client.docs.v1.content.get({ params }, as),
        contentPace,
      );
      if (content !== "") texts.push(content);
    } catch (error) {
      if (!isRefusal(error, 2889902, 2889906, 2889914)) throw error;
    }
  }
  return texts;
}

/** Minutes of the title that were made within a day of the meeting. */
async function minutesOf(
  platform: Platform,
  topic: string,
  start: number,
): Promise<string | undefined> {
  const create_time = {
    start_time: new Date(start - 3_600_000).toISOString(),
    end_time: new Date(start + 86_400_000).toISOString(),
  };
  const { items = [] } = await platform.read((client, as) =>
    client.minutes.v1.minute.search(
      {
        data: { query: topic.slice(0, 50), filter: { create_time } },
        params: { page_size: 2, user_id_type: "open_id" },
      },
      as,
    ),
  );
  // Two of them: the person must say which.
  return items.length === 1 ? items[0]?.token : undefined;
}

async function minutesText(platform: Platform, token: string): Promise<string> {
  const path = { minute_token: checkedId(token, "minutes") };
  const found = await platform.read((client, as) =>
    client.minutes.v1.minute.artifacts({ path }, as),
  );
  const chapters = (found.minute_chapters ?? []).map(
    ({ title = "", summary_content: text = "" }) => `- ${title}: ${text}`,
  );
  const todos = (found.minute_todos ?? []).map(
    ({ content = "", assignees = [], is_done: isDone }) =>
      `- [${isDone === true ? "x" : " "}] ${content}${assignees.length === 0 ? "" : ` (${assignees.join(", ")})`}`,
  );
  return [
    `Summary: ${found.summary ?? ""}`,
    ...(chapters.length === 0 ? [] : ["Chapters:", ...chapters]),
    ...(todos.length === 0 ? [] : ["To-dos:", ...todos]),
  ].join("\n");
}

function cut(text: string): string {
  const left = text.length - maxTextCharacters;
  return left <= 0
    ? text
    : `${text.slice(0, maxTextCharacters)}\n[${left} characters are left out]`;
}

/** Finds meetings, reads minutes. */
export const meetingTools = [findTool, readTool];

/**
 * The steps by which the tables came to be, oldest first. Each runs once, in the schema of the archive;
 * a step that has been released is never changed, another one is added.
 */
export const migrations: readonly string[] = [
  // json, not jsonb: it keeps every text as it was, a zero character among them.
  `
  create table messages (
    session text not null,
    number bigint not null,
    sender text,
    message json not null,
    archived_at timestamptz not null default now(),
    primary key (session, number)
  );
  create index messages_by_sender on messages (sender, session) where sender is not null;
  create table people (
    person text not null,
    session text not null,
    chat_type text not null,
    primary key (person, session)
  );
  create index people_by_session on people (session);
  create table erased (
    session text primary key,
    below bigint not null
  );
  create table audit (
    part text not null,
    at_ms bigint not null,
    number bigint not null,
    app text,
    person text,
    record json not null,
    primary key (part, at_ms, number)
  );
  create index audit_by_person on audit (person, at_ms) where person is not null;
  `,
];

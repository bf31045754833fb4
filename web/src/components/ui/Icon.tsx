import clsx from "clsx";

const CIRCLE = "M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0z";

/** The strokes of each icon, on a grid of 24. */
const PATHS = {
  agent:
    "M6 4v9a4 4 0 0 0 4 4h5M15 15a1.5 1.5 0 0 1 1.5-1.5h3A1.5 1.5 0 0 1 21 15v4a1.5 1.5 0 0 1-1.5 1.5h-3A1.5 1.5 0 0 1 15 19z",
  approval:
    "M12 3c2.2 1.6 4.6 2.3 7 2.5V12c0 4.5-3 7.3-7 9-4-1.7-7-4.5-7-9V5.5C7.4 5.3 9.8 4.6 12 3zM12 8.5v4M12 16h.01",
  back: "m15 6-6 6 6 6",
  bell: "M6 16.5V11a6 6 0 0 1 12 0v5.5l1.5 1.5h-15zM10 21h4",
  bellOff: "M6 16.5V11a6 6 0 0 1 12 0v5.5l1.5 1.5h-15zM10 21h4M4 4l16 16",
  bolt: "M13 3 5 13.5h6L10 21l8-10.5h-6z",
  box: "M4.5 7.5a3 3 0 0 1 3-3h9a3 3 0 0 1 3 3v9a3 3 0 0 1-3 3h-9a3 3 0 0 1-3-3z",
  boxOn: "M4.5 7.5a3 3 0 0 1 3-3h9a3 3 0 0 1 3 3v9a3 3 0 0 1-3 3h-9a3 3 0 0 1-3-3zM8.5 12.2l2.4 2.4 4.6-5",
  cancelled: `${CIRCLE}M8 12h8`,
  clock: `${CIRCLE}M12 7v5l3.5 2`,
  done: `${CIRCLE}m-12.8.3 2.6 2.6 5-5.4`,
  copy: "M9 10.5A1.5 1.5 0 0 1 10.5 9h8a1.5 1.5 0 0 1 1.5 1.5v8a1.5 1.5 0 0 1-1.5 1.5h-8A1.5 1.5 0 0 1 9 18.5zM15 9V5.5A1.5 1.5 0 0 0 13.5 4h-8A1.5 1.5 0 0 0 4 5.5v8A1.5 1.5 0 0 0 5.5 15H9",
  dots: "M5 12h.01M12 12h.01M19 12h.01",
  down: "m6 9 6 6 6-6",
  download: "M12 4v11M7.5 10.5 12 15l4.5-4.5M5 19.5h14",
  drain: "M12 4v10M8 10.5l4 4 4-4M5 20h14",
  edit: "M16.5 4.2a2.2 2.2 0 0 1 3.2 3.2L8 19l-4.5 1.4L5 16z",
  expand: "m7 9 5-5 5 5M7 15l5 5 5-5",
  failed: `${CIRCLE}m-6-3-6 6m0-6 6 6`,
  file: "M14 3H7.5a2 2 0 0 0-2 2v14a2 2 0 0 0 2 2h9a2 2 0 0 0 2-2V7.5zM14 3v4.5h4.5",
  filter: "M4 6h16M7 12h10M10 18h4",
  fleet:
    "M4 6.5A2.5 2.5 0 0 1 6.5 4h11a2.5 2.5 0 0 1 0 5h-11A2.5 2.5 0 0 1 4 6.5zM4 17.5A2.5 2.5 0 0 1 6.5 15h11a2.5 2.5 0 0 1 0 5h-11A2.5 2.5 0 0 1 4 17.5zM8 6.5h.01M8 17.5h.01",
  fork: "M7 4v9a4 4 0 0 0 4 4h6M7 13V20M14 14l3.5 3-3.5 3",
  help: `${CIRCLE}M9.4 9.3a2.7 2.7 0 0 1 5.2.9c0 1.8-2.6 2.3-2.6 3.8M12 17h.01`,
  home: "M4 11.5 12 4l8 7.5V19a1.5 1.5 0 0 1-1.5 1.5h-13A1.5 1.5 0 0 1 4 19z",
  host: "M3.5 6a2 2 0 0 1 2-2h13a2 2 0 0 1 2 2v3a2 2 0 0 1-2 2h-13a2 2 0 0 1-2-2zM3.5 15a2 2 0 0 1 2-2h13a2 2 0 0 1 2 2v3a2 2 0 0 1-2 2h-13a2 2 0 0 1-2-2zM7.5 7.5h.01M7.5 16.5h.01",
  link: "M10 13.5a4.5 4.5 0 0 0 6.7.4l2.6-2.6a4.5 4.5 0 0 0-6.4-6.4l-1 1M14 10.5a4.5 4.5 0 0 0-6.7-.4l-2.6 2.6a4.5 4.5 0 0 0 6.4 6.4l1-1",
  moon: "M20 14.5A8.3 8.3 0 0 1 9.5 4a8.3 8.3 0 1 0 10.5 10.5z",
  note: "M5 5h14v10l-4.5 4.5H5zM14.5 19.5V15H19M8.5 9h7M8.5 12.5h4",
  pause: "M9 6v12M15 6v12",
  pin: "M8 3.5h8M9 3.5V11l-3 3.5h12L15 11V3.5M12 14.5V21",
  plug: "M9 3v5M15 3v5M6.5 8h11v3a5.5 5.5 0 0 1-11 0zM12 16.5V21",
  plus: "M12 5v14M5 12h14",
  queued: CIRCLE,
  rerun: "M20 12a8 8 0 1 1-2.4-5.7L20 8.7M20 4v4.7h-4.7",
  right: "m9 6 6 6-6 6",
  running: "M21 12a9 9 0 0 0-9-9",
  runs: "M9 6h11M9 12h11M9 18h11M4.5 6h.01M4.5 12h.01M4.5 18h.01",
  search: "M17.5 11a6.5 6.5 0 1 1-13 0 6.5 6.5 0 0 1 13 0zM20 20l-4.3-4.3",
  signOut: "M10 4H6.5a2 2 0 0 0-2 2v12a2 2 0 0 0 2 2H10M15.5 8.5 19 12l-3.5 3.5M19 12H9.5",
  sort: "M8 5v14M4.5 15.5 8 19l3.5-3.5M16 19V5M12.5 8.5 16 5l3.5 3.5",
  stop: "M6 8a2 2 0 0 1 2-2h8a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2H8a2 2 0 0 1-2-2z",
  sun: "M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6 7 7M17 17l1.4 1.4M18.4 5.6 17 7M7 17l-1.4 1.4",
  system: "M3 6.5A2.5 2.5 0 0 1 5.5 4h13A2.5 2.5 0 0 1 21 6.5v7a2.5 2.5 0 0 1-2.5 2.5h-13A2.5 2.5 0 0 1 3 13.5zM9 20h6",
  term: "M3 6.5A2.5 2.5 0 0 1 5.5 4h13A2.5 2.5 0 0 1 21 6.5v11a2.5 2.5 0 0 1-2.5 2.5h-13A2.5 2.5 0 0 1 3 17.5zM7.5 9.5 10 12l-2.5 2.5M13 15h3.5",
  think: "M9.5 18h5M10.5 21h3M12 3a6.2 6.2 0 0 0-3.9 11c.8.7 1.2 1.4 1.4 2.3h5c.2-.9.6-1.6 1.4-2.3A6.2 6.2 0 0 0 12 3z",
  todo: "m3.5 6.5 1.7 1.7L8.5 5M3.5 16.5l1.7 1.7 3.3-3.2M12.5 7H21M12.5 17H21",
  tool: "M14.5 6.5a4 4 0 0 1 5-1.5L17 7.5l2.5 2.5L22 7.5a4 4 0 0 1-5.5 5L8 21l-3.5-3.5L13 9a4 4 0 0 1 1.5-2.5z",
  trash: "M4.5 6.5h15M9 6.5V4h6v2.5M6.5 6.5l1 13.5h9l1-13.5",
  user: "M16 8a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM4.5 20.5c.7-4 3.6-6 7.5-6s6.8 2 7.5 6",
  waiting: `${CIRCLE}M9.4 9.3a2.7 2.7 0 0 1 5.2.9c0 1.8-2.6 2.3-2.6 3.8M12 17h.01`,
  warn: "M12 4 2.8 19.5h18.4zM12 10v4M12 17h.01",
  web: `${CIRCLE}M3 12h18M12 3c2.5 2.5 3.8 5.5 3.8 9s-1.3 6.5-3.8 9c-2.5-2.5-3.8-5.5-3.8-9S9.5 5.5 12 3z`,
};
export type IconName = keyof typeof PATHS;

interface Props {
  name: IconName;
  /** The name for screen readers; without one the icon is decoration. */
  label?: string | undefined;
  className?: string | undefined;
}

/** An icon, 16 pixels wide unless its class says otherwise. */
export function Icon({ name, label, className }: Props) {
  return (
    <svg
      {...(label === undefined ? { "aria-hidden": true } : { role: "img", "aria-label": label })}
      viewBox="0 0 24 24"
      className={clsx(
        "shrink-0 fill-none stroke-current stroke-[1.75]",
        /\bsize-/.test(className ?? "") || "size-4",
        className,
      )}
      strokeLinecap="round"
      strokeLinejoin="round"
    >
      {name === "running" && <path d={CIRCLE} opacity=".28" />}
      <path d={PATHS[name]} strokeDasharray={name === "queued" ? "3.2 3.86" : undefined} />
    </svg>
  );
}

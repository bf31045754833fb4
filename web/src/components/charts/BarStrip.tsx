interface BarStripProps {
  /** One bar per item; the parts from bottom to top. */
  bars: readonly (readonly { value: number; color: string }[])[];
  highest: number;
  label: string;
  width: number;
  height: number;
  /** The part of a bar's place that it fills. */
  fill?: number;
  /** Whether an empty bar is drawn as a mark on the base line. */
  hasBaseMarks?: boolean;
}

/** Stacked bars without axes. */
export function BarStrip({ bars, highest, label, width, height, fill = 0.72, hasBaseMarks = false }: BarStripProps) {
  const step = width / Math.max(1, bars.length);
  const scale = highest > 0 ? height / highest : 0;
  return (
    <svg role="img" aria-label={label} viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" className="strip">
      {bars.map((parts, index) => {
        let top = height;
        const total = parts.reduce((sum, { value }) => sum + value, 0);
        if (total === 0 && hasBaseMarks)
          return <rect key={index} x={index * step} y={height - 1} width={step * fill} height={1} fill="var(--n-6)" />;
        return parts.map(({ value, color }) => {
          if (value === 0) return null;
          const size = Math.max(1, value * scale);
          top -= size;
          return (
            <rect key={`${index} ${color}`} x={index * step} y={top} width={step * fill} height={size} fill={color} />
          );
        });
      })}
    </svg>
  );
}
